"""Where records come from: one protocol for a store and for any Kafka, and the unit of work.

Owns these types only. An Input lives on the driver and plans. A Range is what one task reads: it
can be pickled and contains all that is needed, so `read_range` must never need Spark or the Input.
"""

import dataclasses
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from holdfast.columnar.arrow import RecordBatch
from holdfast.columnar.unreadable import Unreadable
from holdfast.errors import StopError
from holdfast.log.partition import EpochStart
from holdfast.log.stored_batches import Stretch
from holdfast.log.transactions import AbortedTxn
from holdfast.spark.source.kafka_options import ClientOptions
from holdfast.spark.source.where import ALL_ROWS, RowFilter

LOGGER = logging.getLogger("holdfast.spark.source.data_source")

ROWS_PER_BATCH = 50_000


class DataLoss(StopError):
    """Records that should be read are gone: below the log start, or with their topic."""


class SourcePartition(NamedTuple):
    """One partition of one incarnation of a topic."""

    topic: str
    partition: int
    topic_id: UUID | None
    """The topic's id. A Kafka that is too old has none, and a recreated topic is not noticed."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicInfo(NamedTuple):
    """A topic as it is now."""

    name: str
    topic_id: UUID | None
    partitions: int

    def all_partitions(self) -> list[SourcePartition]:
        return [SourcePartition(self.name, i, self.topic_id) for i in range(self.partitions)]


Offsets = Mapping[SourcePartition, int]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """How a plan is divided into tasks, and what its tasks do."""

    min_partitions: int = 1
    """About how many tasks there are at least, if there are enough bytes for them."""
    include_headers: bool = False
    fail_on_data_loss: bool = True
    row_filter: RowFilter = ALL_ROWS
    """The rows that tasks return. Start and end are clipped to it already."""
    fail_on_unreadable: bool = True
    quarantine_store: str | None = None


DEFAULT_PLAN = PlanOptions()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StoreWhere:
    """The place of a range in a store: an address, and the stretches of its objects."""

    url: str
    stretches: tuple[Stretch, ...]
    """Stretches in offset order. Those that cannot hold a wanted row may be missing."""
    epochs: tuple[EpochStart, ...] = ()
    """The leader epochs of the stretches' batches, as the log has them."""
    aborted: tuple[AbortedTxn, ...] | None = None
    """Transactions whose records are left out. None: uncommitted records are read, too."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KafkaWhere:
    """The Kafka cluster from which a range is fetched."""

    client: ClientOptions
    read_committed: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """What one task reads: offsets from `start_offset` up to, but not including, `end_offset`."""

    topic: str
    topic_id: UUID | None
    partition: int
    start_offset: int
    end_offset: int
    where: StoreWhere | KafkaWhere
    include_headers: bool = False
    fail_on_data_loss: bool = True
    """If false, records that are gone are skipped."""
    fail_on_unreadable: bool = True
    """If false, a record batch that cannot be read is logged, counted and left out."""
    quarantine_store: str | None = None
    """The store that keeps such a record batch whole. None: it is in the topic only."""
    row_filter: RowFilter = ALL_ROWS
    """The rows to return. Stretches that cannot hold one of them may be left out."""

    @property
    def topic_partition(self) -> SourcePartition:
        return SourcePartition(self.topic, self.partition, self.topic_id)

    @property
    def size_bytes(self) -> int:
        """The size of the record batches, if it is known; otherwise 0."""
        if isinstance(self.where, StoreWhere):
            return sum(stretch.size_bytes for stretch in self.where.stretches)
        return 0


class Input(Protocol):
    """A source of records, on the driver. Its calls block. For one thread."""

    def topics(self) -> dict[str, TopicInfo]:
        """Return all topics as of now, by name. For a store, the other calls use this look."""
        ...

    def earliest(self, partitions: Sequence[SourcePartition]) -> dict[SourcePartition, int]:
        """Return each partition's first offset; DataLoss if one or its topic was deleted."""
        ...

    def latest(self, partitions: Sequence[SourcePartition]) -> dict[SourcePartition, int]:
        """Return the offset after the last one that may be read. It never goes back."""
        ...

    def by_timestamp(self, at_ms: Offsets) -> dict[SourcePartition, int | None]:
        """Return the first record at or after each partition's time; None if all are older."""
        ...

    def plan(
        self, start: Offsets, end: Offsets, options: PlanOptions = DEFAULT_PLAN
    ) -> list[Range]:
        """Return tasks that read the wanted rows of [start, end) once, for `end`'s partitions."""
        ...

    def close(self) -> None:
        """Release the connections; shared ones stay open."""
        ...


class UnreadableBatch(StopError):
    """A record batch with a right CRC whose records cannot be read."""


@dataclasses.dataclass(slots=True)
class LeftOut:
    """How many offsets were left out because their record batch cannot be read."""

    offsets: int = 0

    def counts(self) -> dict[str, int]:
        """Return the count for the report of a task; empty if everything was read."""
        return {"unreadable": self.offsets} if self.offsets else {}

    def take(self, found: Unreadable, wanted: Range) -> None:
        """Quarantine and count a record batch as the range says, or raise if it says so."""
        last = found.last_offset
        named = (
            f"{wanted.topic_partition}: the record batch at offsets {found.base_offset} to {last}"
        )
        if wanted.fail_on_unreadable:
            raise UnreadableBatch(
                f"{named} cannot be read: {found.problem}. Its producer sent it so. To go on"
                ' without its records, set the option unreadable to "quarantine"'
            )
        if wanted.quarantine_store is not None:
            _keep_whole(found, wanted, wanted.quarantine_store)
        self.offsets += found.offsets_in(wanted.start_offset, wanted.end_offset)
        LOGGER.warning("unreadable_batch: %s is left out: %s", named, found.problem)


def _keep_whole(found: Unreadable, wanted: Range, url: str) -> None:
    # Few tasks ever meet such a batch, and planning never does: import it only here.
    from holdfast.landing.quarantine import quarantine
    from holdfast.spark.runtime.worker import STORE_SILENCE_S_MAX, worker

    own = worker()
    own.run(
        quarantine(
            own.writable(url),
            found,
            topic=wanted.topic,
            topic_id=wanted.topic_id,
            partition=wanted.partition,
            environment=own.environment,
            give_up_after_s=STORE_SILENCE_S_MAX,
        )
    )


def read_range(
    wanted: Range, columns: Collection[str] | None = None, left_out: LeftOut | None = None
) -> Iterator[RecordBatch]:
    """Yield the records of a range as Spark's Kafka columns, about ROWS_PER_BATCH rows at a time.

    Runs on executors. Raises DataLoss only if records are really gone. If `columns` are named,
    others may be missing. What cannot be read is counted in `left_out`, or raised.
    """
    is_whole = wanted.row_filter == ALL_ROWS
    rows = _readable(wanted, columns if is_whole else None, left_out or LeftOut())
    return rows if is_whole else wanted.row_filter.matching(rows)


def _readable(
    wanted: Range, columns: Collection[str] | None, left_out: LeftOut
) -> Iterator[RecordBatch]:
    for item in _read_whole(wanted, columns):
        if isinstance(item, Unreadable):
            left_out.take(item, wanted)
        else:
            yield item


def _read_whole(
    wanted: Range, columns: Collection[str] | None
) -> Iterator[RecordBatch | Unreadable]:
    # Each worker imports only the reader that it needs.
    if isinstance(wanted.where, StoreWhere):
        from holdfast.spark.source.store_read import read_store_range

        return read_store_range(wanted, wanted.where, columns)
    from holdfast.spark.source.kafka_read import read_kafka_range

    return read_kafka_range(wanted, wanted.where)
