"""The transactions of one partition: open ones, aborted ones, and the last stable offset.

Pure. Owns the last stable offset and the index of aborted transactions. A transaction leaves `open`
when its end is decided. It holds the last stable offset back until the object with its marker is
durable. Must never judge whether a transaction may begin or end.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.errors import InvariantViolation

NO_TRANSACTION = -1
"""The first offset of a transaction that wrote nothing here."""


class OpenTransaction(NamedTuple):
    """A transaction with records on this partition, whose end is not decided."""

    producer_epoch: int
    first_offset: int
    started_ms: int


class AbortedTxn(NamedTuple):
    """An aborted transaction: the producer's transactional records in its offsets do not count."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the marker."""
    last_stable_offset: int
    """The value when the marker was decided. Transactions aborted later begin at or after it."""


class Transactions:
    """The transactions of one partition. Each transactional batch and each marker changes them."""

    __slots__ = ("_holding", "aborted", "open")

    def __init__(
        self,
        open_: Iterable[tuple[int, OpenTransaction]] = (),
        aborted: Iterable[AbortedTxn] = (),
    ) -> None:
        self.open: dict[int, OpenTransaction] = dict(open_)
        """Open transactions by producer id, oldest first."""
        self.aborted: list[AbortedTxn] = list(aborted)
        """Aborted transactions in the order of their markers."""
        self._holding: dict[int, int] = {
            found.first_offset: producer_id for producer_id, found in self.open.items()
        }
        """The producer id by first offset, oldest first, of transactions without a durable end."""

    def write(self, producer_id: int, producer_epoch: int, offset: int, now_ms: int) -> None:
        """Apply a decided transactional batch: it opens a transaction, or continues one."""
        if producer_id not in self.open:
            self.open[producer_id] = OpenTransaction(producer_epoch, offset, now_ms)
            self._holding[offset] = producer_id

    def end(
        self, producer_id: int, first_offset: int, marker_offset: int, *, committed: bool
    ) -> None:
        """Apply a decided marker."""
        found = self.open.pop(producer_id, None)
        if first_offset != (found.first_offset if found is not None else NO_TRANSACTION):
            raise InvariantViolation(
                f"the marker at offset {marker_offset} ends a transaction of producer"
                f" {producer_id} that begins at offset {first_offset}, but its open transaction is"
                f" {found}"
            )
        if found is not None and not committed:
            oldest = next(iter(self.open.values()), None)
            stable = oldest.first_offset if oldest is not None else marker_offset + 1
            self.aborted.append(AbortedTxn(producer_id, first_offset, marker_offset, stable))

    def publish_end(self, first_offset: int) -> None:
        """Let readers continue past a transaction whose marker is durable."""
        self._holding.pop(first_offset, None)

    def drop_below(self, log_start_offset: int) -> None:
        """Forget transactions that ended below the log start: their records cannot be fetched."""
        del self.aborted[: self._first_since(log_start_offset)]

    def aborted_since(self, log_start_offset: int) -> list[AbortedTxn]:
        return self.aborted[self._first_since(log_start_offset) :]

    def last_stable_offset(self, log_start_offset: int, high_watermark: int) -> int:
        """Return the offset where a `read_committed` reader must stop."""
        first = next(iter(self._holding), high_watermark)
        return min(high_watermark, max(log_start_offset, first))

    def aborted_within(self, start: int, end: int) -> list[AbortedTxn]:
        """Return aborted transactions in [start, end); `end` <= the last stable offset."""
        found: list[AbortedTxn] = []
        for i in range(self._first_since(start), len(self.aborted)):
            entry = self.aborted[i]
            if entry.first_offset < end:
                found.append(entry)
            if entry.last_stable_offset >= end:
                break
        return found

    def _first_since(self, offset: int) -> int:
        return bisect_left(self.aborted, offset, key=lambda entry: entry.last_offset)


def intersecting(aborted: Sequence[AbortedTxn], start: int, end: int) -> list[AbortedTxn]:
    """Return the aborted transactions of a list that overlap [start, end)."""
    return [entry for entry in aborted if entry.last_offset >= start and entry.first_offset < end]
