"""Verification before a transaction's first batch on a partition (KIP-890), and its order.

Owns the questions to coordinators, and the order of requests that wait for them: batches of one
transactional id are decided in the order of arrival. Without verification, a late batch would open
a transaction that nobody ends. So would a batch whose transaction ends while the coordinator's
answer is under way, so that end is noted with the question.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Generator, Iterable

from holdfast.identifiers import PartitionId
from holdfast.protocol.api import ErrorCode, Refused

ADDS_PARTITIONS_SINCE = 12
"""The first version of Produce whose clients do not send AddPartitionsToTxn (KIP-890)."""
ASKED_AGAIN = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
"""Errors of a coordinator that may be gone in a moment."""
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
    """The version of Produce. Since 12 the batch itself adds the partition to the transaction."""


def wrong_start(append: TransactionalAppend) -> Refused | None:
    """Return the refusal of a batch that no coordinator can admit as a transaction's first."""
    if append.api_version < ADDS_PARTITIONS_SINCE or append.base_sequence == 0:
        return None
    # Each transaction has its own epoch, so an earlier batch was refused or is late.
    return Refused(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"{append.partition}: a transaction must begin with sequence 0, not {append.base_sequence}",
    )


def not_verified(append: TransactionalAppend, problem: ErrorCode) -> Refused:
    """Return the refusal of a batch that a coordinator did not admit, or could not be asked about.

    The errors are those of Kafka's partition leaders. One that may be gone in a moment becomes
    NOT_ENOUGH_REPLICAS, which every client retries. Only CONCURRENT_TRANSACTIONS stays, for newer
    clients.
    """
    is_old = append.api_version < ADDS_PARTITIONS_SINCE
    told = problem
    if problem is ErrorCode.PRODUCER_FENCED:
        told = ErrorCode.INVALID_PRODUCER_EPOCH
    elif problem is ErrorCode.TRANSACTION_ABORTABLE and is_old:
        told = ErrorCode.INVALID_TXN_STATE
    elif problem in ASKED_AGAIN and (is_old or problem is not ErrorCode.CONCURRENT_TRANSACTIONS):
        told = ErrorCode.NOT_ENOUGH_REPLICAS
    return Refused(
        told,
        f"{append.partition}: transactional id {append.transactional_id}: {problem.name}",
    )


VerifyTransaction = Callable[[TransactionalAppend], Refused | None]
"""A check of a batch. It returns None if the coordinator knows that the partition is part of the
transaction, and if this knowledge is durable before the batch is."""


class RequestOrder:
    """The order of requests for one transactional id, or for one lane, if the first has to wait."""

    def __init__(self) -> None:
        self._last: dict[str, asyncio.Future[None]] = {}

    @property
    def are_taken(self) -> bool:
        """True if any request waits."""
        return bool(self._last)

    def is_taken(self, name: str) -> bool:
        """True if an earlier request still waits. A later one must not overtake it."""
        return name in self._last

    async def wait(
        self, name: str, barrier: asyncio.Future[None] | None, seconds_max: float | None = None
    ) -> asyncio.Future[None]:
        """Wait for earlier requests, then for the barrier, each for at most `seconds_max`.

        Others wait for the barrier, too. The caller then decides, and resolves the returned future.
        """
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
"""A part that a transaction ends on: a partition, or a group by its id."""


class HeldBack:
    """Batches that got a retriable error. Batches that follow them must not take their place.

    A partition that knows nothing of a producer takes any sequence for its first.
    """

    def __init__(self) -> None:
        self._first: dict[tuple[PartitionId, int], tuple[int, int]] = {}

    def is_behind(self, append: TransactionalAppend) -> bool:
        """True if an earlier batch must be retried first."""
        epoch, sequence = self._first.get((append.partition, append.producer_id), (-1, -1))
        return epoch == append.producer_epoch and append.base_sequence > sequence

    def judged(self, append: TransactionalAppend, refused: Refused | None) -> Refused | None:
        """Return the refusal of a batch, given its coordinator's verdict. None means accepted."""
        if self.is_behind(append):
            return refused or not_verified(append, ErrorCode.CONCURRENT_TRANSACTIONS)
        key = append.partition, append.producer_id
        if refused is None:
            self._first.pop(key, None)
        elif refused.error is ErrorCode.NOT_ENOUGH_REPLICAS:
            if key not in self._first and len(self._first) >= HELD_MAX:
                del self._first[next(iter(self._first))]
            self._first[key] = (append.producer_epoch, append.base_sequence)
        return refused

    def forget(self) -> None:
        """Forget all batches, because a lane has left: they are retried elsewhere."""
        self._first.clear()

    def ended(self, producer_id: int, part: Part) -> None:
        """Forget the batch, because the producer's transaction has ended: it is not retried."""
        if not isinstance(part, str):
            self._first.pop((part, producer_id), None)


class Question:
    """A question to a coordinator about parts of a producer's transaction."""

    __slots__ = ("ended",)

    def __init__(self) -> None:
        self.ended: set[Part] = set()
        """Parts that ended here after the question was asked: the answer may be older than that."""


class Underway:
    """Questions to other brokers' coordinators that are not answered yet, and batches held back."""

    def __init__(self) -> None:
        self.held_back = HeldBack()
        self._asked: dict[tuple[int, Part], list[Question]] = {}

    @contextlib.contextmanager
    def asking(self, parts: Iterable[tuple[int, Part]]) -> Generator[Question]:
        """Register a question about parts, each of a producer, for the duration of the block.

        The block ends when everything that the question is about is decided.
        """
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
        """Note that a producer's transaction ends here, even if it had not begun."""
        self.held_back.ended(producer_id, part)
        for question in self._asked.get((producer_id, part), ()):
            question.ended.add(part)
