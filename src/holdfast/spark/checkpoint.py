"""What Spark has written about a query: its id, and the offsets of each micro-batch.

Owns the reading of a checkpoint folder, through Spark's own file systems. Must never write there.
A log may have been written over by another driver, since not every file system lets the first
writer win; so what it says of the running micro-batch counts only where the query itself, in
memory, says the same.
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
"""The text of a file under the checkpoint, or None where it is not there."""
RunningEnds = Callable[[str], "list[str] | None"]
"""The end offsets that the running query of this id has in memory, in no order; None where there is
no such query."""


class OffsetLogReplaced(StopError):
    """The offset log is not the one that this driver wrote: another one works here too."""


class Checkpoint:
    """One checkpoint folder."""

    def __init__(
        self, location: str, read_text: ReadText, running_ends: RunningEnds | None = None
    ) -> None:
        self.location = location
        self._read_text = read_text
        self._running_ends = running_ends
        self._query_id: str | None = None

    @property
    def is_new(self) -> bool:
        """Whether no query has begun here."""
        return self._read_text("metadata") is None

    @property
    def query_id(self) -> str:
        """Spark's name for the query that this checkpoint belongs to; it outlives restarts."""
        if self._query_id is None:
            text = self._read_text("metadata")
            if text is None:
                raise CorruptObject(f"{self.location}: there is no checkpoint, or its id is gone")
            self._query_id = str(json.loads(text)["id"])
        return self._query_id

    def offsets(self, batch_id: int) -> list[str | None] | None:
        """The end offset of each source in a micro-batch; None where it is not in the log."""
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
        """The identity of a micro-batch, with positions as the ledger compares them."""
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
    """Read through the JVM, so that every file system that Spark can write to can be read."""
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
    """Where the newest micro-batch of a query of the JVM ends, for each source, in no order."""
    offsets = query.streamingQuery().availableOffsets().valuesIterator()
    found: list[str] = []
    while offsets.hasNext():
        found.append(str(offsets.next().json()))
    return found
