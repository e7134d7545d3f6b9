"""Where records come from: one protocol for a store and for any Kafka, and the unit of work.

Owns the vocabulary only. An Input lives on the driver and plans; a Range is what one task reads. It
is picklable and says everything by itself, so `read_range` needs neither Spark nor the Input.
"""

import dataclasses
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from holdfast.columnar.arrow import RecordBatch
from holdfast.columnar.unreadable import Unreadable
from holdfast.errors import StopError
from holdfast.follow.stretches import Stretch
from holdfast.log.transactions import AbortedTransaction
from holdfast.spark.kafka_options import ClientOptions
from holdfast.spark.where import ALL_ROWS, RowFilter

LOGGER = logging.getLogger("holdfast.spark.source")

ROWS_PER_BATCH = 50_000


class DataLoss(StopError):
    """Records that were to be read are gone: below the log start, or with their topic."""


class TopicPartition(NamedTuple):
    """One partition of one incarnation of a topic."""

    topic: str
    partition: int
    topic_id: UUID | None
    """None where a Kafka is too old to have topic ids: then a recreated topic is not noticed."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicInfo(NamedTuple):
    """A topic as it is now."""

    name: str
    topic_id: UUID | None
    partitions: int

    def all_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, i, self.topic_id) for i in range(self.partitions)]


Offsets = Mapping[TopicPartition, int]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """How a plan is cut into tasks, and what its tasks are to do."""

    min_partitions: int = 1
    """At least about so many tasks, where there are bytes enough for them."""
    include_headers: bool = False
    fail_on_data_loss: bool = True
    row_filter: RowFilter = ALL_ROWS
    """Tasks give its rows only. Start and end are clipped to it already."""
    fail_on_unreadable: bool = True
    quarantine_store: str | None = None


DEFAULT_PLAN = PlanOptions()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StoreWhere:
    """The bytes, in a store."""

    url: str
    stretches: tuple[Stretch, ...]
    """In offset order; those that can have no wanted row may be missing."""
    aborted: tuple[AbortedTransaction, ...] | None = None
    """Transactions whose records are left out; None: the reader wants uncommitted records too."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KafkaWhere:
    """A cluster to fetch from."""

    client: ClientOptions
    read_committed: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """What one task reads: offsets from start_offset up to, and without, end_offset."""

    topic: str
    topic_id: UUID | None
    partition: int
    start_offset: int
    end_offset: int
    where: StoreWhere | KafkaWhere
    include_headers: bool = False
    fail_on_data_loss: bool = True
    """False: what is gone is skipped."""
    fail_on_unreadable: bool = True
    """False: a record batch that cannot be read is named, counted and left out."""
    quarantine_store: str | None = None
    """Where such a batch is kept whole; None: in the topic alone."""
    row_filter: RowFilter = ALL_ROWS
    """Stretches that can have none of its rows may be left out."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition, self.topic_id)

    @property
    def size_bytes(self) -> int:
        """Of the record batches, where they are known; else 0."""
        if isinstance(self.where, StoreWhere):
            return sum(stretch.size_bytes for stretch in self.where.stretches)
        return 0


class Input(Protocol):
    """A source of records, on the driver. Blocking; for one thread."""

    def topics(self) -> dict[str, TopicInfo]:
        """All topics as of now, by name. For a store this is the look that others build on."""
        ...

    def earliest(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that each has; DataLoss where one is gone, or its topic is another."""
        ...

    def latest(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last one that may be read. Never less than it said before."""
        ...

    def by_timestamp(self, at_ms: Offsets) -> dict[TopicPartition, int | None]:
        """The first record not older than each partition's time; None where all are older."""
        ...

    def plan(
        self, start: Offsets, end: Offsets, options: PlanOptions = DEFAULT_PLAN
    ) -> list[Range]:
        """Tasks that read the wanted rows of [start, end), in no overlap, of `end`'s partitions."""
        ...

    def close(self) -> None:
        """Let go of connections; shared ones stay."""
        ...


class UnreadableBatch(StopError):
    """A record batch with a right CRC whose records cannot be read."""


@dataclasses.dataclass(slots=True)
class LeftOut:
    """What was left out of some ranges, because its record batch cannot be read."""

    offsets: int = 0

    def counts(self) -> dict[str, int]:
        """For the report of a task; nothing where all was read."""
        return {"unreadable": self.offsets} if self.offsets else {}

    def take(self, found: Unreadable, wanted: Range) -> None:
        """Keep a batch where the range says, and count it; or raise where it asks for that."""
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
    # Few tasks ever meet such a batch: what only plans loads none of this.
    from holdfast.landing.quarantine import quarantine
    from holdfast.spark.worker import STORE_SILENCE_S_MAX, worker

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
    """The records of a range as Spark's Kafka columns, about ROWS_PER_BATCH rows at a time.

    Runs on executors. Raises DataLoss only where records are really gone. Where columns are named,
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
    # Each worker loads the one that it needs.
    if isinstance(wanted.where, StoreWhere):
        from holdfast.spark.store_read import read_store_range

        return read_store_range(wanted, wanted.where, columns)
    from holdfast.spark.kafka_read import read_kafka_range

    return read_kafka_range(wanted, wanted.where)
