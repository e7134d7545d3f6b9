"""Verification before a transaction's first batch on a partition (KIP-890), and its order.

Owns what the coordinator is asked, and who goes first where that takes a wait: of one transactional
id, batches are decided in the order of arrival. Without verification, a batch that is late would
open a transaction that nobody ends.
"""

import asyncio
import dataclasses
from collections.abc import Callable

from holdfast.identifiers import PartitionId
from holdfast.log.append import Refused


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalAppend:
    """A batch that would open a transaction on a partition."""

    transactional_id: str | None
    producer_id: int
    producer_epoch: int
    base_sequence: int
    partition: PartitionId
    api_version: int
    """Of Produce: since 12 the batch itself adds the partition to the transaction."""


VerifyTransaction = Callable[[TransactionalAppend], Refused | None]
"""None: the coordinator knows that this partition is part of the transaction, and what it knows is
durable before the batch is."""


class Turns:
    """Requests of one transactional id, one after the other where the first has to wait."""

    def __init__(self) -> None:
        self._last: dict[str, asyncio.Future[None]] = {}

    @property
    def are_taken(self) -> bool:
        """Whether anybody waits at all."""
        return bool(self._last)

    def is_taken(self, name: str) -> bool:
        """Whether an earlier request still waits: then a later one must not overtake it."""
        return name in self._last

    async def wait(
        self, name: str, barrier: asyncio.Future[None] | None, seconds_max: float | None = None
    ) -> asyncio.Future[None]:
        """Wait for those before and for the barrier, which others wait for, too, for so long at
        most; then decide, and resolve what this returns."""
        before = self._last.get(name)
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._last[name] = mine
        mine.add_done_callback(lambda done: self._forget(name, done))
        try:
            for future in (before, barrier):
                if future is not None:
                    await asyncio.wait({future}, timeout=seconds_max)
        except asyncio.CancelledError:
            mine.set_result(None)
            raise
        return mine

    def _forget(self, name: str, done: asyncio.Future[None]) -> None:
        if self._last.get(name) is done:
            del self._last[name]
