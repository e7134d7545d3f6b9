"""Reads what Spark has written about a query: its id, and the offsets of each micro-batch.

Owns the reading of a checkpoint folder, through Spark's own file systems. Must never write there.
Not every file system lets the first writer win, so another driver may have overwritten a log. So
what the log says of the running micro-batch counts only if the query itself, in memory, says the
same.
"""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from holdfast.errors import CorruptObject, StopError
from holdfast.landing.ledger_entry import MicroBatch
from holdfast.spark.positions import source_ranges

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_OFFSET = "-"
VERSION_LINE = "v1"

ReadText = Callable[[str], "str | None"]
"""A function that returns the text of a file under the checkpoint, or None if there is none."""
RunningEnds = Callable[[str], "list[str] | None"]
"""A function that returns the end offsets that the query of an id has in memory.

They are in no order. None if no query of this id runs.
"""


class OffsetLogReplaced(StopError):
    """The offset log is not the one that this driver wrote: another driver works here, too."""


class Checkpoint:
    """The checkpoint folder of one query."""

    def __init__(
        self, location: str, read_text: ReadText, running_ends: RunningEnds | None = None
    ) -> None:
        self.location = location
        self._read_text = read_text
        self._running_ends = running_ends
        self._query_id: str | None = None

    @property
    def is_new(self) -> bool:
        """True if no query has begun here."""
        return self._read_text("metadata") is None

    @property
    def query_id(self) -> str:
        """Spark's id of the query that this checkpoint belongs to. It survives restarts."""
        if self._query_id is None:
            text = self._read_text("metadata")
            if text is None:
                raise CorruptObject(f"{self.location}: there is no checkpoint, or its id is gone")
            self._query_id = str(json.loads(text)["id"])
        return self._query_id

    def offsets(self, batch_id: int) -> list[str | None] | None:
        """Return the end offset of each source in a micro-batch; None if it is not in the log."""
        text = self._read_text(f"offsets/{batch_id}")
        if text is None:
            return None
        lines = text.splitlines()
        if len(lines) < 3 or lines[0] != VERSION_LINE:
            raise CorruptObject(
                f"{self.location}/offsets/{batch_id}: this is no offset log that this release"
                f" knows: {text[:200]!r}"
            )
        return [None if line == NO_OFFSET else line for line in lines[2:]]

    def micro_batch(self, batch_id: int, ledger_ends: tuple[str, ...] | None) -> MicroBatch:
        """Return the identity of a micro-batch, with positions as the ledger compares them."""
        ends = self.offsets(batch_id)
        if ends is None:
            raise CorruptObject(
                f"{self.location}/offsets/{batch_id}: the offsets of the micro-batch that is"
                " running are not there; the checkpoint was changed by something else than Spark"
            )
        self._check_running(batch_id, ends)
        starts = self.offsets(batch_id - 1) if batch_id > 0 else None
        return MicroBatch(
            query_id=self.query_id,
            batch_id=batch_id,
            sources=source_ranges(starts, ends, ledger_ends),
        )

    def _check_running(self, batch_id: int, ends: list[str | None]) -> None:
        running = self._running_ends(self.query_id) if self._running_ends is not None else None
        logged = [end for end in ends if end is not None]
        if running is not None and sorted(running) != sorted(logged):
            raise OffsetLogReplaced(
                f"{self.location}/offsets/{batch_id} says that micro-batch {batch_id} ends at"
                f" {', '.join(logged)[:300]}; the one that runs here ends at"
                f" {', '.join(running)[:300]}. Another driver has written over the offset log, and"
                " nothing was published. What to do: stop all drivers but one, and start that one"
                " again"
            )


def open_checkpoint(spark: "SparkSession", location: str) -> Checkpoint:
    """Return a checkpoint that is read through the JVM.

    So it can be on every file system that Spark can write to.
    """
    java = cast(Any, spark)._jvm
    configuration = cast(Any, spark)._jsc.hadoopConfiguration()

    def read_text(name: str) -> str | None:
        path = java.org.apache.hadoop.fs.Path(location, name)
        files = path.getFileSystem(configuration)
        if not files.exists(path):
            return None
        stream = files.open(path)
        try:
            return str(java.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def running_ends(query_id: str) -> list[str] | None:
        query = cast(Any, spark)._jsparkSession.streams().get(query_id)
        return None if query is None else available_offsets(query)

    return Checkpoint(location, read_text, running_ends)


def available_offsets(query: Any) -> list[str]:
    """Return where the newest micro-batch of a JVM's query ends, for each source, in no order."""
    offsets = query.streamingQuery().availableOffsets().valuesIterator()
    found: list[str] = []
    while offsets.hasNext():
        found.append(str(offsets.next().json()))
    return found
