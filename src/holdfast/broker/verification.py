"""Verification before a transaction's first batch on a partition (KIP-890), and its order.

Owns what the coordinator is asked, and who goes first where that takes a wait: of one transactional
id, batches are decided in the order of arrival. Without verification, a batch that is late would
open a transaction that nobody ends. So would one whose transaction is ended while the coordinator's
answer is under way: who asked is told of that end.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Generator, Iterable

from holdfast.identifiers import PartitionId
from holdfast.log.append import Refused
from holdfast.protocol.api import ErrorCode

ADDS_PARTITIONS_SINCE = 12
"""Of Produce: clients that speak it do not send AddPartitionsToTxn (KIP-890)."""
ASKED_AGAIN = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
"""What a coordinator says that may be otherwise in a moment."""
HELD_MAX = 10_000


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


def wrong_start(append: TransactionalAppend) -> Refused | None:
    """Why a batch cannot be a transaction's first, whatever its coordinator says."""
    if append.api_version < ADDS_PARTITIONS_SINCE or append.base_sequence == 0:
        return None
    # Each transaction has an epoch of its own: an earlier batch was refused or is late.
    return Refused(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.name,
        f"{append.partition}: a transaction must begin with sequence 0, not {append.base_sequence}",
    )


def not_verified(append: TransactionalAppend, problem: ErrorCode) -> Refused:
    """What is told of a batch that a coordinator did not admit, or could not be asked about: what
    may be otherwise in a moment is NOT_ENOUGH_REPLICAS, which every client tries again. The errors
    are those of Kafka's partition leaders."""
    is_old = append.api_version < ADDS_PARTITIONS_SINCE
    told = problem
    if problem is ErrorCode.PRODUCER_FENCED:
        told = ErrorCode.INVALID_PRODUCER_EPOCH
    elif problem is ErrorCode.TRANSACTION_ABORTABLE and is_old:
        told = ErrorCode.INVALID_TXN_STATE
    elif problem in ASKED_AGAIN and (is_old or problem is not ErrorCode.CONCURRENT_TRANSACTIONS):
        told = ErrorCode.NOT_ENOUGH_REPLICAS
    return Refused(
        told.name,
        f"{append.partition}: transactional id {append.transactional_id}: {problem.name}",
    )


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


Part = PartitionId | str
"""What a transaction ends on: a partition, or a group by its id."""


class HeldBack:
    """Batches that were told to come again: those that follow them must not take their place.

    A partition that knows nothing of a producer takes any sequence for its first.
    """

    def __init__(self) -> None:
        self._first: dict[tuple[PartitionId, int], tuple[int, int]] = {}

    def is_behind(self, append: TransactionalAppend) -> bool:
        """Whether an earlier batch is to come again first."""
        epoch, sequence = self._first.get((append.partition, append.producer_id), (-1, -1))
        return epoch == append.producer_epoch and append.base_sequence > sequence

    def judged(self, append: TransactionalAppend, refused: Refused | None) -> Refused | None:
        """What is told of a batch, where its coordinator said this."""
        if self.is_behind(append):
            return refused or not_verified(append, ErrorCode.CONCURRENT_TRANSACTIONS)
        key = append.partition, append.producer_id
        if refused is None:
            self._first.pop(key, None)
        elif refused.error == ErrorCode.NOT_ENOUGH_REPLICAS.name:
            if key not in self._first and len(self._first) >= HELD_MAX:
                del self._first[next(iter(self._first))]
            self._first[key] = (append.producer_epoch, append.base_sequence)
        return refused

    def forget(self) -> None:
        """A lane has left: what was refused comes again elsewhere."""
        self._first.clear()

    def ended(self, producer_id: int, part: Part) -> None:
        """The producer's transaction has ended: what was refused does not come again."""
        if not isinstance(part, str):
            self._first.pop((part, producer_id), None)


class Question:
    """Something that a coordinator is asked about parts of a producer's transaction."""

    __slots__ = ("ended",)

    def __init__(self) -> None:
        self.ended: set[Part] = set()
        """Parts on which an end was decided here meanwhile: the answer may be older than that."""


class Underway:
    """Questions to coordinators of other brokers whose answers are not there yet; and the batches
    that were told to come again."""

    def __init__(self) -> None:
        self.held_back = HeldBack()
        self._asked: dict[tuple[int, Part], list[Question]] = {}

    @contextlib.contextmanager
    def asking(self, parts: Iterable[tuple[int, Part]]) -> Generator[Question]:
        """While a question about parts, each of a producer, is under way, and until what it is
        about is decided."""
        question = Question()
        keys = set(parts)
        for key in keys:
            self._asked.setdefault(key, []).append(question)
        try:
            yield question
        finally:
            for key in keys:
                self._asked[key].remove(question)
                if not self._asked[key]:
                    del self._asked[key]

    def ended(self, producer_id: int, part: Part) -> None:
        """A producer's transaction is ended here, also where it had not begun."""
        self.held_back.ended(producer_id, part)
        for question in self._asked.get((producer_id, part), ()):
            question.ended.add(part)
