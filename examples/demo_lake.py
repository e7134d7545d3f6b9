"""What the query of the demo has left: rows of committed files, and how far it says it has read.

Owns the reading. A file counts if an entry of the ledger names it, and a position is what the
ledger, or Spark's own offset log, says; nothing here judges.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

from holdfast.environment import SystemEnvironment
from holdfast.landing import blocking
from holdfast.landing.ledger import read_entry
from holdfast.landing.ledger_entry import Entry
from holdfast.store.read_only import open_read_only

Position = dict[int, int]
"""The next offset to read, for each partition."""


class Lake:
    """One sink's files and ledger in a directory, followed while a query writes."""

    def __init__(self, folder: Path, sink_id: str, topic: str) -> None:
        self.folder = folder
        self.sink_id = sink_id
        self.entries: list[Entry] = []
        self._topic = topic
        folder.mkdir()

    def look(self) -> "Lake":
        """See what was committed since the last look."""
        blocking.run(self._follow())
        return self

    async def _follow(self) -> None:
        environment = SystemEnvironment()
        store = open_read_only(str(self.folder), environment=environment)
        try:
            while True:
                n = len(self.entries)
                found = await read_entry(store, self.sink_id, n, environment=environment)
                if found is None:
                    return
                self.entries.append(found.entry)
        finally:
            await store.close()

    @property
    def rows(self) -> int:
        return sum(file.rows for entry in self.entries for file in entry.files)

    @property
    def repeats(self) -> int:
        """How many rows dedup held back."""
        return sum(entry.counts.get("duplicates", 0) for entry in self.entries)

    def has_reached(self, ends: Position) -> bool:
        """Whether everything before these offsets is committed."""
        now = self.positions()[-1] if self.entries else {}
        return all(now.get(partition, 0) >= end for partition, end in ends.items())

    def positions(self) -> list[Position]:
        """Where each micro-batch began and ended, in the order of the ledger."""
        texts = [
            text
            for entry in self.entries
            for text in (entry.sources[0].start, entry.sources[0].end)
            if text is not None
        ]
        return [_position(text, self._topic) for text in texts]

    def ids(self) -> Counter[str]:
        """How often each id has landed."""
        return Counter(json.loads(value)["id"] for value in self._values())

    def _values(self) -> Iterator[bytes]:
        for entry in self.entries:
            for file in entry.files:
                table = pq.read_table(self.folder / file.path, columns=["value"])
                yield from table.column("value").to_pylist()


def offset_log(checkpoint: Path, topic: str) -> list[Position]:
    """The end of each micro-batch that Spark's own log still has, in order."""
    paths = [path for path in (checkpoint / "offsets").glob("[0-9]*") if path.name.isdigit()]
    paths.sort(key=lambda path: int(path.name))
    return [_position(path.read_text().splitlines()[-1], topic) for path in paths]


def running_batch(checkpoint: Path) -> int | None:
    """The micro-batch that has begun and is not committed, or None between two of them."""
    begun = _newest(checkpoint / "offsets")
    return begun if begun is not None and begun != _newest(checkpoint / "commits") else None


def _newest(log: Path) -> int | None:
    numbers = [int(path.name) for path in log.glob("[0-9]*") if path.name.isdigit()]
    return max(numbers, default=None)


def _position(text: str, topic: str) -> Position:
    partitions = json.loads(text)["topics"].get(topic, {"partitions": {}})["partitions"]
    return {int(partition): int(offset) for partition, offset in partitions.items()}
