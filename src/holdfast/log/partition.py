"""The log of one partition, built from the facts of its lane.

Pure. Owns offsets, the index of where each stretch of the log is stored, leader epochs and
producer state. Offsets that a client may see (high_watermark, last_stable_offset,
log_start_offset) move only when the object that moves them is durable; log_end_offset and
start_decided run ahead of them.
"""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.errors import InvariantViolation
from holdfast.identifiers import PartitionId
from holdfast.lane.entry import SPOOLED
from holdfast.log import invariants
from holdfast.log.facts import Appended, RecordsMissing, SegmentRef, TransactionEnd
from holdfast.log.producers import ProducerState, RememberedBatch
from holdfast.log.transactions import Transactions

SEQUENCES = 1 << 31


class PartitionRun(NamedTuple):
    """A stretch of one partition's log inside one lane object."""

    base_offset: int
    last_offset: int
    number: int
    position: int
    """The run's position in the object's payload."""
    size_bytes: int
    max_timestamp: int


class EpochStart(NamedTuple):
    """The first offset that was appended under a leader epoch."""

    leader_epoch: int
    start_offset: int


class Ceiling(NamedTuple):
    """The offset below which a partition may be acknowledged from a disk, and the disk's claim."""

    offset: int
    claim: int


class RunColumns:
    """The runs of a partition in offset order, as columns: one run costs 48 bytes, not 500."""

    __slots__ = ("base", "last", "max_timestamp", "number", "position", "size")

    def __init__(self) -> None:
        self.base = array("q")
        self.last = array("q")
        self.number = array("q")
        self.position = array("q")
        self.size = array("q")
        self.max_timestamp = array("q")

    def columns(self) -> tuple["array[int]", ...]:
        return (self.base, self.last, self.number, self.position, self.size, self.max_timestamp)

    def __len__(self) -> int:
        return len(self.base)

    def append(self, run: PartitionRun) -> None:
        for column, value in zip(self.columns(), run, strict=True):
            column.append(value)

    def get(self, i: int) -> PartitionRun:
        return PartitionRun(
            self.base[i],
            self.last[i],
            self.number[i],
            self.position[i],
            self.size[i],
            self.max_timestamp[i],
        )

    def pop(self) -> PartitionRun:
        """Remove and return the last run."""
        run = self.get(len(self) - 1)
        for column in self.columns():
            del column[-1]
        return run

    def drop_first(self, count: int) -> None:
        for column in self.columns():
            del column[:count]

    def find(self, offset: int) -> int:
        """Return the index of the first run that ends at or after the offset, or len(self)."""
        i = bisect_right(self.base, offset) - 1
        if i < 0 or self.last[i] < offset:
            i += 1
        return i


class PartitionLog:
    """The log of one partition."""

    def __init__(self, partition: PartitionId) -> None:
        self.partition = partition
        self.start_decided = 0
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.high_watermark = 0
        self.runs = RunColumns()
        self.segments: list[SegmentRef] = []
        self.epochs: list[EpochStart] = []
        self.producers: dict[int, ProducerState] = {}
        self.transactions = Transactions()
        self.ceiling = Ceiling(0, -1)
        self.durable_ceiling = Ceiling(0, -1)
        self.missing: list[RecordsMissing] = []
        """Offset ranges that were given up. The log has an empty batch for each."""

    def _require(self, problem: str | None) -> None:
        if problem is not None:
            raise InvariantViolation(f"{self.partition}: {problem}")

    @property
    def awaits_claim(self) -> int | None:
        """The claim whose disk may hold acknowledged records that the store lacks; None if none.

        Only a new owner asks, because an owner knows what is on its own disk.
        """
        ceiling = self.durable_ceiling
        return ceiling.claim if ceiling.offset > self.log_end_offset else None

    @property
    def sealed_end_offset(self) -> int:
        """The end of the part of the log that is in numbered objects, or in frames on the disk."""
        if len(self.runs):
            return self.runs.last[-1] + 1
        return self.segments[-1].last_offset + 1 if self.segments else self.log_start_offset

    def append(self, fact: Appended, leader_epoch: int) -> None:
        """Apply a decided batch."""
        self._require(invariants.batch_follows(self, fact.base_offset, fact.last_offset))
        self.log_end_offset = fact.last_offset + 1
        if fact.leader_epoch >= 0:
            leader_epoch = fact.leader_epoch
        if not self.epochs or self.epochs[-1].leader_epoch != leader_epoch:
            self.epochs.append(EpochStart(leader_epoch, fact.base_offset))
        if fact.ends is not None:
            self._end_transaction(fact, fact.ends)
        elif fact.producer_id >= 0:
            self._remember(fact)
            if fact.is_transactional:
                self.transactions.write(
                    fact.producer_id, fact.producer_epoch, fact.base_offset, fact.appended_ms
                )

    def _remember(self, fact: Appended) -> None:
        last = (fact.base_sequence + fact.last_offset - fact.base_offset) % SEQUENCES
        batch = RememberedBatch(
            fact.base_sequence, last, fact.base_offset, fact.crc, fact.appended_ms
        )
        self._producer_of(fact).remember(fact.producer_epoch, batch)

    def _end_transaction(self, fact: Appended, end: TransactionEnd) -> None:
        producer = self._producer_of(fact)
        producer.end_transaction(fact.producer_epoch, end.coordinator_epoch, fact.appended_ms)
        self.transactions.end(
            fact.producer_id, end.first_offset, fact.base_offset, committed=end.committed
        )

    def _producer_of(self, fact: Appended) -> ProducerState:
        state = self.producers.get(fact.producer_id)
        if state is None:
            state = ProducerState(fact.producer_epoch, [], fact.appended_ms)
            self.producers[fact.producer_id] = state
        return state

    def publish(self, fact: Appended) -> None:
        """Let readers see a durable batch, and past the transaction that it ends."""
        self.high_watermark = fact.last_offset + 1
        if fact.ends is not None:
            self.transactions.publish_end(fact.ends.first_offset)

    @property
    def last_stable_offset(self) -> int:
        """The offset where a `read_committed` reader stops. It never moves backwards."""
        return self.transactions.last_stable_offset(self.log_start_offset, self.high_watermark)

    def expire_producers(self, before_ms: int) -> None:
        """Forget producers that wrote nothing since then, unless their transaction is open."""
        for producer_id in self.expired_producers(before_ms):
            del self.producers[producer_id]

    def expired_producers(self, before_ms: int) -> list[int]:
        return [
            producer_id
            for producer_id, producer in self.producers.items()
            if producer.last_ms < before_ms and producer_id not in self.transactions.open
        ]

    def add_run(self, run: PartitionRun) -> None:
        """Remember where batches are stored, now that their object has a number.

        A run in a lane object replaces the runs of its offsets that are only on the disk.
        """
        on_disk: list[PartitionRun] = []
        while run.number < SPOOLED and len(self.runs) and self.runs.number[-1] >= SPOOLED:
            on_disk.append(self.runs.pop())
        self._require(invariants.run_follows(self, run))
        self.runs.append(run)
        for later in reversed(on_disk):
            if later.base_offset > run.last_offset:
                self.add_run(later)

    def move_start(self, offset: int) -> None:
        """Decide a new log start. Until it is durable, records below it can still be read."""
        self.start_decided = max(self.start_decided, offset)

    def publish_start(self, offset: int) -> list[SegmentRef]:
        """Forget everything that ends below the offset; return the segments that it frees."""
        if offset <= self.log_start_offset:
            return []
        self.log_start_offset = offset
        gone = [segment for segment in self.segments if segment.last_offset < offset]
        del self.segments[: len(gone)]
        self.runs.drop_first(self.runs.find(offset))
        while len(self.epochs) > 1 and self.epochs[1].start_offset <= offset:
            del self.epochs[0]
        self.transactions.drop_below(offset)
        return gone

    def replace(
        self, up_to: int, replaced: list[str], segments: list[SegmentRef]
    ) -> list[SegmentRef]:
        """Replace lane objects, and older segments, by segments; return the segments it frees."""
        while len(self.runs) and self.runs.number[0] <= up_to:
            self.runs.drop_first(bisect_right(self.runs.number, up_to))
        gone = [segment for segment in self.segments if segment.name in replaced]
        kept = [segment for segment in self.segments if segment.name not in replaced]
        dead = [s for s in segments if s.last_offset < self.log_start_offset]
        self.segments = kept + [s for s in segments if s.last_offset >= self.log_start_offset]
        self._require(invariants.segments_follow(self.segments))
        return gone + dead

    def end_of_epoch(self, leader_epoch: int) -> EpochStart:
        """Return the largest epoch up to the given one, and the offset where it ended (KIP-101)."""
        found = -1
        end = self.high_watermark
        for i, entry in enumerate(self.epochs):
            if entry.leader_epoch > leader_epoch:
                end = entry.start_offset
                break
            found = i
        if found < 0:
            return EpochStart(-1, -1) if not self.epochs else EpochStart(leader_epoch, end)
        return EpochStart(self.epochs[found].leader_epoch, min(end, self.high_watermark))

    @property
    def stored_bytes(self) -> int:
        """The size of all record batches of the partition."""
        return sum(self.runs.size) + sum(segment.size_bytes for segment in self.segments)


def leader_epoch_at(epochs: Sequence[EpochStart], offset: int) -> int | None:
    """Return the leader epoch under which an offset was appended; None if it is not known."""
    if epochs and epochs[-1].start_offset <= offset:  # the usual case: it saves the search
        return epochs[-1].leader_epoch
    i = bisect_right(epochs, offset, key=lambda epoch: epoch.start_offset) - 1
    return epochs[i].leader_epoch if i >= 0 else None


def epochs_within(
    epochs: Sequence[EpochStart], first_offset: int, last_offset: int
) -> tuple[EpochStart, ...]:
    """Return the leader epochs under which the offsets from first to last were appended."""
    start = bisect_right(epochs, first_offset, key=lambda epoch: epoch.start_offset) - 1
    end = bisect_right(epochs, last_offset, key=lambda epoch: epoch.start_offset)
    return tuple(epochs[max(0, start) : end])
