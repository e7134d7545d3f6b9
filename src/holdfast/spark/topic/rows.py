"""Encodes the rows of a task as record batches for topics: chooses partitions, makes the bytes.

Pure, except for the clock that is passed in. Owns the columns of the sink, the choice of the
partition (as in Kafka's Java producer) and the size of batches. The batches have no producer id
yet: only the driver writes, and it stamps them then.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from holdfast.columnar.arrow import RecordBatch, pa
from holdfast.columnar.murmur2 import key_hashes
from holdfast.errors import CallError
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.records.compression import Codec
from holdfast.records.record import Record, encode_batch

BATCH_BYTES_MAX = 512 * 1024
"""The size of a batch before compression. Kafka's own limit is 1 MiB.

A larger record goes alone.
"""
RECORD_BYTES = 24
"""About how many bytes a record takes besides its key and value."""

Headers = tuple[tuple[str, bytes | None], ...]


class Staged(NamedTuple):
    """A record batch for one partition, which the driver will write."""

    where: TopicPartition
    records: int
    batch: bytearray


@dataclass(slots=True)
class _Open:
    """The records that were gathered for one partition."""

    records: list[Record] = field(default_factory=list[Record])
    size: int = 0


class RowEncoder:
    """Encodes the rows of one task, one Arrow batch after the other."""

    def __init__(
        self,
        *,
        topic: str | None,
        codec: Codec,
        partitions_of: Callable[[str], int],
        now_ms: Callable[[], int],
        first: int = 0,
        batch_bytes_max: int = BATCH_BYTES_MAX,
    ) -> None:
        self._topic = topic
        self._codec = codec
        self._partitions_of = partitions_of
        self._now_ms = now_ms
        self._first = first
        self._bytes_max = batch_bytes_max
        self._counts: dict[str, int] = {}
        self._turns: dict[str, int] = {}
        """For each topic: where records without a key go. It moves on when a batch is full."""
        self._open: dict[TopicPartition, _Open] = {}
        self._staged: list[Staged] = []

    def add(self, rows: RecordBatch) -> None:
        """Encode the rows of one Arrow batch."""
        columns = {name: rows.column(i) for i, name in enumerate(rows.schema.names)}
        now_ms = self._now_ms()
        keys = _bytes_column(columns, "key", rows.num_rows)
        hashes = key_hashes(keys) if keys is not None else None
        nobody = [None] * rows.num_rows
        for i, (key, value, topic, partition, headers) in enumerate(
            zip(
                nobody if keys is None else keys.to_pylist(),
                _bytes_column(columns, "value", rows.num_rows).to_pylist(),
                nobody if self._topic is not None else columns["topic"].to_pylist(),
                columns["partition"].to_pylist() if "partition" in columns else nobody,
                columns["headers"].to_pylist() if "headers" in columns else nobody,
                strict=True,
            )
        ):
            name = self._topic or self._named(topic)
            if partition is not None:
                number = self._checked(name, partition)
            elif key is not None and hashes is not None:
                number = int(hashes[i]) % self._count(name)
            else:
                number = self._turn(name)
            record = Record(0, now_ms, key, value, _headers(headers) if headers else ())
            self._put(TopicPartition(name, number), record)

    def finish(self) -> list[Staged]:
        """Return all batches; those of one partition are in the order of their rows."""
        for where in list(self._open):
            self._close(where)
        return self._staged

    def _named(self, topic: str | None) -> str:
        if not topic:
            raise CallError(
                "a row has no topic: fill the column `topic`, or give the option topic for all rows"
            )
        return topic

    def _count(self, topic: str) -> int:
        if topic not in self._counts:
            self._counts[topic] = self._partitions_of(topic)
        return self._counts[topic]

    def _checked(self, topic: str, partition: int) -> int:
        if not 0 <= partition < self._count(topic):
            raise CallError(
                f"a row is for partition {partition} of topic {topic!r}, which has"
                f" {self._count(topic)}: they count from 0"
            )
        return partition

    def _turn(self, topic: str) -> int:
        return self._turns.setdefault(topic, self._first) % self._count(topic)

    def _put(self, where: TopicPartition, record: Record) -> None:
        gathered = self._open.get(where)
        size = RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
        size += sum(2 + len(name) + len(value or b"") for name, value in record.headers)
        if gathered is not None and size > self._bytes_max:
            self._close(where)
            gathered = None
        if gathered is None:
            gathered = self._open[where] = _Open()
        gathered.records.append(record)
        gathered.size += size
        if gathered.size >= self._bytes_max:
            self._close(where)

    def _close(self, where: TopicPartition) -> None:
        records = self._open.pop(where).records
        batch = bytearray(encode_batch(records, codec=self._codec))
        self._staged.append(Staged(where, len(records), batch))
        turn = self._turns.get(where.topic)
        if turn is not None and turn % self._count(where.topic) == where.partition:
            self._turns[where.topic] = turn + 1


def _bytes_column(columns: Mapping[str, Any], name: str, rows: int) -> Any:
    column = columns.get(name)
    if column is None or pa.types.is_null(column.type):
        return None if name == "key" else pa.nulls(rows, pa.binary())
    is_plain = pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
    return column if is_plain else column.cast(pa.binary())


def _headers(found: object) -> Headers:
    rows = cast("list[dict[str, Any]]", found)
    return tuple((str(row["key"]), row["value"]) for row in rows)
