"""The state of each idempotent producer on a partition: its epoch and its last five batches.

Pure. Owns the rules that distinguish a new batch from a retry and from a gap. This state is built
from the same facts as the log itself, so it can be neither ahead of the records nor behind them.
"""

import dataclasses
from typing import NamedTuple

from holdfast.protocol.api import ErrorCode
from holdfast.records.batch import BatchHeader

REMEMBERED_BATCHES = 5
SEQUENCES = 1 << 31
NO_COORDINATOR_EPOCH = -1


class RememberedBatch(NamedTuple):
    """An appended batch, as remembered to recognise a retry of it."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    crc: int
    """The CRC, as part of the snapshot's format. Never compared: a retry may have other bytes."""
    appended_ms: int


class ProducerState:
    """One producer id on one partition. Mutable: it changes with each batch."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_ms")

    def __init__(
        self,
        epoch: int,
        batches: list[RememberedBatch],
        last_ms: int,
        coordinator_epoch: int = NO_COORDINATOR_EPOCH,
    ) -> None:
        self.epoch = epoch
        self.batches = batches
        """The last batches of this epoch. Empty only after a marker with a new epoch."""
        self.last_ms = last_ms
        self.coordinator_epoch = coordinator_epoch
        """The coordinator epoch of the newest marker."""

    def remember(self, epoch: int, batch: RememberedBatch) -> None:
        """Remember an appended batch. A new epoch forgets the sequences of the old one."""
        self._enter(epoch)
        self.batches.append(batch)
        if len(self.batches) > REMEMBERED_BATCHES:
            del self.batches[0]
        self.last_ms = max(self.last_ms, batch.appended_ms)

    def end_transaction(self, epoch: int, coordinator_epoch: int, now_ms: int) -> None:
        """Apply a marker. After one with a new epoch (KIP-890), sequences start at 0 again."""
        self._enter(epoch)
        self.coordinator_epoch = coordinator_epoch
        self.last_ms = max(self.last_ms, now_ms)

    def _enter(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches = []


@dataclasses.dataclass(frozen=True, slots=True)
class RepeatedBatch:
    """The batch is in the log already, at this offset."""

    original: RememberedBatch


@dataclasses.dataclass(frozen=True, slots=True)
class Gap:
    """Earlier batches are missing here, but may still be on their way."""

    expected_sequence: int
    message: str


@dataclasses.dataclass(frozen=True, slots=True)
class OutOfSequence:
    """The batch can never be next."""

    problem: ErrorCode
    message: str


def check_sequence(
    state: ProducerState | None, header: BatchHeader
) -> RepeatedBatch | Gap | OutOfSequence | None:
    """Return None if a batch is next; otherwise whether it is a retry, early, or out of order.

    A retry has the sequence range of a remembered batch. Its bytes do not matter, as in Kafka:
    some clients (kafkajs) put a new timestamp into each attempt.
    """
    if state is None:
        return None
    epoch, first = header.producer_epoch, header.base_sequence
    if epoch < state.epoch:
        return OutOfSequence(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {header.producer_id}: the record batch has producer epoch {epoch}, but the"
            f" partition knows the newer epoch {state.epoch}",
        )
    if epoch > state.epoch:
        return None if first == 0 else _gap(header, 0)
    for batch in state.batches:
        if batch.base_sequence == first and batch.last_sequence == header.last_sequence:
            return RepeatedBatch(batch)
    expected = (state.batches[-1].last_sequence + 1) % SEQUENCES if state.batches else 0
    if first == expected:
        return None
    if (first - expected) % SEQUENCES < SEQUENCES // 2:
        return _gap(header, expected)
    return _out_of_order(header, f"sequence {first} is out of order; {expected} is expected")


def _gap(header: BatchHeader, expected: int) -> Gap:
    what = f"sequence {header.base_sequence} is out of order; {expected} is expected"
    return Gap(expected, _told_of(header, what))


def _out_of_order(header: BatchHeader, what: str) -> OutOfSequence:
    return OutOfSequence(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, _told_of(header, what))


def _told_of(header: BatchHeader, what: str) -> str:
    return f"producer {header.producer_id} epoch {header.producer_epoch}: {what}"
