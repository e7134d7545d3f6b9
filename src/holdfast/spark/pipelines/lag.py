"""How far a run is behind its source, in records.

Runs on the driver. Owns a thread that asks the source for its newest offsets. Must never delay the
run: if the source does not answer, the lag is unknown.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any, cast

from holdfast.errors import CorruptObject, HoldfastError, RetryError
from holdfast.spark.source import offsets
from holdfast.spark.source.inputs import Input, Offsets
from holdfast.spark.source.options import SourceOptions
from holdfast.spark.source.planning import selected


def lag_of(progress: Mapping[str, Any]) -> int | None:
    """Return the records that wait, by Spark's progress of a micro-batch; None if it is unknown."""
    lag = 0
    for source in progress.get("sources") or ():
        end, latest = source.get("endOffset"), source.get("latestOffset")
        if not isinstance(end, dict) or not isinstance(latest, dict):
            return None
        try:
            read = offsets.from_json(cast(object, end)).positions
            newest = offsets.from_json(cast(object, latest)).positions
        except CorruptObject:
            return None
        lag += _between(read, newest)
    return lag


def lag_behind(read: Sequence[str], newest: Offsets) -> int | None:
    """Return the records between what a query has read and the newest offsets.

    `read` is Spark's text of the offset of each source. None if it is not one offset of this
    source.
    """
    if len(read) != 1:
        return None
    try:
        return _between(offsets.from_json(json.loads(read[0])).positions, newest)
    except (CorruptObject, ValueError):
        return None


def _between(read: Offsets, newest: Offsets) -> int:
    return sum(max(0, n - read.get(where, 0)) for where, n in newest.items())


class NewestOffsets:
    """Asks the source, in a thread and on request, where its logs end."""

    def __init__(self, source: Input, options: SourceOptions) -> None:
        self._source = source
        self._options = options
        self._answer: Offsets | None = None
        self._problem: str | None = None
        """Why the last look found nothing, if trying again may help."""
        self._is_away = False
        self._wanted = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="holdfast-lag", daemon=True)
        self._thread.start()

    def ask(self) -> bool:
        """Begin a look. Return False if the last one is not done yet."""
        is_free = not self._wanted.is_set()
        self._wanted.set()
        return is_free

    def take(self) -> Offsets | None:
        """Return what the last look found, once; None if it failed or is not done."""
        found, self._answer = self._answer, None
        return found

    def note_silence(self) -> None:
        """Note that the last look has taken too long: the source does not answer."""
        if self._wanted.is_set() and self._problem is None:
            self._problem = "no answer yet"

    def news(self) -> str | None:
        """Return, once for each change, that the source stopped answering or answers again."""
        problem = self._problem
        if (problem is not None) == self._is_away:
            return None
        self._is_away = problem is not None
        if problem is None:
            return "the source answers again"
        return f"the source does not answer; trying again ({problem})"

    def close(self) -> None:
        self._is_closed = True
        self._wanted.set()

    def _work(self) -> None:
        while self._wanted.wait() and not self._is_closed:
            try:
                partitions = selected(self._source.topics(), self._options.selection)
                self._answer = dict(self._source.latest(partitions))
                self._problem = None
            except HoldfastError as error:
                # The query asks the same source, and ends if that cannot help.
                self._answer = None
                self._problem = str(error) if isinstance(error, RetryError) else None
            self._wanted.clear()
