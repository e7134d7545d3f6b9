"""The groups of one lane, live: waiting requests, deadlines, and responses sent when durable.

Owns the wiring between the pure coordinator, the lane and the clock. Must never let a response
leave while a crash could still undo something that was decided about its group.
"""

import asyncio
import itertools
import zlib
from collections.abc import Callable, Collection, Coroutine, Iterator
from typing import Any, NamedTuple, TypeVar, cast

from holdfast.broker.groups.matching import NameMatcher
from holdfast.broker.lanes.leadership import coordinator_error, needs_proof
from holdfast.broker.settling import then
from holdfast.environment import Environment
from holdfast.errors import Fenced, HoldfastError
from holdfast.expressions import BadExpression, Expression
from holdfast.groups.coordinator import GroupCoordinator
from holdfast.groups.deadlines import NEVER
from holdfast.groups.facts import (
    GenerationFormed,
    GroupDeleted,
    GroupFact,
    TargetAssigned,
    TransactionalOffsetsEnded,
)
from holdfast.groups.outbox import Token
from holdfast.groups.rules import GroupRules
from holdfast.groups.state import PendingOffsets
from holdfast.groups.topics import Topics
from holdfast.identifiers import LaneId, PartitionId
from holdfast.log.data_lane import DataLane
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.message import Message
from holdfast.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from holdfast.protocol.messages.sync_group import SyncGroupResponse

MessageT = TypeVar("MessageT", bound=Message)
TIMER_SECONDS_MAX = 3_600.0
FIRST_DATA_LANE = 1
CLASSIC = "classic"
CONSUMER = "consumer"
SLICE_ANSWERS = 100
"""The number of responses that one write releases before other requests have their turn."""
TOKEN_BITS = 32
"""The number of bits of a token that are below the leader epoch."""


def lane_of(name: str, lanes: int) -> LaneId:
    """Return the lane that coordinates a group or transactional id. It never changes in a store."""
    return LaneId(FIRST_DATA_LANE + zlib.crc32(name.encode()) % lanes)


def refusal(error: BaseException | None) -> ErrorCode:
    """Return the error for clients whose coordinator ends: find the new one, or try again."""
    if error is None or isinstance(error, Fenced):
        return ErrorCode.NOT_COORDINATOR
    return ErrorCode.COORDINATOR_NOT_AVAILABLE


class _Waiting(NamedTuple):
    """A request that is not answered yet."""

    group_id: str
    refused: Callable[[ErrorCode], Message]
    future: asyncio.Future[Message]


class LaneGroups:
    """The running coordinator of a lane's groups."""

    def __init__(
        self,
        lane: DataLane,
        environment: Environment,
        rules: GroupRules,
        topics: Callable[[], Topics],
        matcher: NameMatcher,
    ) -> None:
        self._lane = lane
        self._matcher = matcher
        self._environment = environment
        self._topics = topics
        self._tokens: Iterator[int] = itertools.count()
        self._waiting: dict[Token, _Waiting] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self._leaving: set[asyncio.Task[None]] = set()
        self._held: dict[asyncio.Future[None], list[tuple[_Waiting, Message]]] = {}
        """Responses that wait for the same write, by its future."""
        self._ended: dict[str, asyncio.Event] = {}
        """By group with pending transactions that a request waits for: an event of the next end."""
        self._open_offsets: dict[tuple[str, int], tuple[PendingOffsets, int]] = {}
        """Offsets that open transactions will commit, with the token of each transaction. Only
        those that a token was asked for are here."""
        self._has_ended = False
        self.rebalances = {CLASSIC: 0, CONSUMER: 0}
        """Generations and target assignments made here, by the protocol of the group."""
        self.coordinator = GroupCoordinator(
            lane.state.groups,
            self,
            rules,
            now=environment.monotonic(),
            now_ms=environment.now_ms,
            topics=topics,
            new_member_suffix=lambda: str(environment.new_uuid()),
        )
        lane.when_fenced(self.end)
        self._set_timer()

    @property
    def lane(self) -> DataLane:
        return self._lane

    def now(self) -> float:
        return self._environment.monotonic()

    def problem(self) -> ErrorCode | None:
        """Return the error if nothing can be decided here any more, otherwise None."""
        if self._lane.is_open and not self._has_ended:
            return None
        return refusal(self._lane.failure)

    def decide(self, fact: GroupFact) -> None:
        self._lane.add(fact)
        if isinstance(fact, GenerationFormed):
            self.rebalances[CLASSIC] += 1
        elif isinstance(fact, TargetAssigned):
            self.rebalances[CONSUMER] += 1
        elif isinstance(fact, TransactionalOffsetsEnded):
            self._open_offsets.pop((fact.group_id, fact.producer_id), None)
            self._wake(fact.group_id)
        elif isinstance(fact, GroupDeleted):
            for key in [key for key in self._open_offsets if key[0] == fact.group_id]:
                del self._open_offsets[key]

    def token_of(self, group_id: str, producer_id: int) -> int | None:
        """Return the token of a producer's open transaction on a group, or None if none is open.

        No two transactions ever have the same token, not even under different owners of the lane.
        """
        group = self._lane.state.groups.groups.get(group_id)
        pending = group.pending.get(producer_id) if group is not None else None
        if pending is None:
            return None
        known = self._open_offsets.get((group_id, producer_id))
        if known is None or known[0] is not pending:
            token = (self._lane.leader_epoch << TOKEN_BITS) + next(self._tokens)
            known = self._open_offsets[group_id, producer_id] = (pending, token)
        return known[1]

    async def wait_while_pending(
        self, group_id: str, partitions: Collection[PartitionId], seconds_max: float
    ) -> None:
        """Wait until no open transaction is about to move these offsets, at most `seconds_max`."""
        deadline = self.now() + seconds_max
        while self.problem() is None and self._is_pending(group_id, partitions):
            ended = self._ended.setdefault(group_id, asyncio.Event())
            try:
                async with asyncio.timeout(deadline - self.now()):
                    await ended.wait()
            except TimeoutError:
                return

    def _is_pending(self, group_id: str, partitions: Collection[PartitionId]) -> bool:
        group = self._lane.state.groups.groups.get(group_id)
        return group is not None and any(group.is_pending(partition) for partition in partitions)

    def _wake(self, group_id: str) -> None:
        ended = self._ended.pop(group_id, None)
        if ended is not None:
            ended.set()

    async def ask(
        self,
        group_id: str,
        question: Callable[[Token, Topics], None],
        refused: Callable[[ErrorCode], MessageT],
        *,
        expression: str | None = None,
    ) -> MessageT:
        """Ask the coordinator, and return its response when the response may leave.

        `expression` is a valid regular expression that must be matched before the question.
        """
        topics = await self._matched_topics(group_id, expression)
        problem = self.problem()
        if problem is not None:
            return refused(problem)
        token = Token(next(self._tokens))
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[token] = _Waiting(group_id, refused, future)
        question(token, topics)
        self._set_timer()
        return cast(MessageT, await future)

    async def _matched_topics(self, group_id: str, expression: str | None) -> Topics:
        """Return the current topics, with the names that all expressions of a group match.

        Names are matched in slices, so that a large number of topics delays no other request. The
        group keeps its matches: after that, only new names are tried.
        """
        added: set[str] = set() if expression is None else {expression}
        known = self.coordinator.known_topics(group_id)
        topics = self._topics()
        if known.by_name is topics.by_name and known.has_matched(added):
            return known
        while True:
            topics = self._topics()
            wanted = added | self.coordinator.expressions(group_id)
            if not wanted:
                return topics
            if known.by_name is topics.by_name and known.has_matched(wanted):
                return known
            matches = {each: await self._matching(each, topics, known) for each in wanted}
            known = Topics(topics.by_name, matches)

    async def _matching(self, text: str, topics: Topics, before: Topics) -> frozenset[str]:
        names = topics.unmatched_names(text, before)
        try:
            found = await self._matcher.matching(Expression(text), names) if names else []
        except BadExpression:
            return frozenset()  # accepted by an earlier version; it matches nothing now
        return topics.matched(text, before, found)

    def answer(self, token: Token, response: Message) -> None:
        waiting = self._waiting.pop(token)
        barrier = self._barrier(waiting.group_id)
        if barrier is None:
            self._leave(waiting, response)
            return
        held = self._held.get(barrier)
        if held is None:
            held = self._held[barrier] = []
            self._start(self._release(barrier, held))
        held.append((waiting, response))

    def _start(self, leaving: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(leaving)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _barrier(self, group_id: str) -> asyncio.Future[None] | None:
        if self._lane.state.groups.is_settled(group_id):
            return None
        return self._lane.barrier()

    async def _release(
        self, barrier: asyncio.Future[None], held: list[tuple[_Waiting, Message]]
    ) -> None:
        """Let responses leave in slices: a generation of thousands of members is one write."""
        error = await _outcome(barrier)
        del self._held[barrier]
        for count, (waiting, response) in enumerate(held, 1):
            refused = waiting.refused(refusal(error)) if error is not None else None
            self._leave(waiting, refused or response)
            if count % SLICE_ANSWERS == 0:
                await asyncio.sleep(0)

    def _leave(self, waiting: _Waiting, response: Message) -> None:
        if needs_proof(self._lane, _error_of(response), gives=_gives(response)):
            self._start(self._leave_if_proven(waiting, response))
        else:
            _resolve(waiting.future, response)

    async def _leave_if_proven(self, waiting: _Waiting, response: Message) -> None:
        told = _error_of(response)
        proven = await coordinator_error(self._lane, told, gives=_gives(response))
        _resolve(waiting.future, response if proven is told else waiting.refused(proven))

    def answered(
        self, group_id: str, answer: Callable[[ErrorCode | None], MessageT]
    ) -> MessageT | asyncio.Future[MessageT]:
        """Return the response when everything decided about a group is durable.

        `answer` makes it, and gets the error if that failed, otherwise None.
        """
        self._set_timer()
        barrier = self._barrier(group_id)
        if barrier is None:
            return answer(None)

        def settled(done: asyncio.Future[None]) -> MessageT:
            error = done.exception()
            return answer(refusal(error) if error is not None else None)

        return then(barrier, settled)

    async def settled(self, group_id: str) -> ErrorCode | None:
        """Wait until everything decided about a group is durable. Return the error if it failed."""
        self._set_timer()
        barrier = self._barrier(group_id)
        error = await _outcome(barrier) if barrier is not None else None
        return refusal(error) if error is not None else None

    async def vouched(self, group_id: str, told: ErrorCode) -> ErrorCode | None:
        """Wait as `settled` does, and prove the claim if `told` is a refusal.

        Only the newest coordinator may refuse.
        """
        problem = await self.settled(group_id)
        if problem is None:
            proven = await coordinator_error(self._lane, told)
            problem = proven if proven is not told else None
        return problem

    def _set_timer(self) -> None:
        """Set the timer to the coordinator's next deadline. A tick too early does no harm."""
        at = self.coordinator.next_deadline()
        if self._has_ended or at >= self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        wait_s = min(max(0.0, at - self.now()), TIMER_SECONDS_MAX)
        self._timer_at = at
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._tick)

    def _tick(self) -> None:
        self._timer, self._timer_at = None, NEVER
        if self.problem() is None:
            self.coordinator.tick(self.now())
            self._set_timer()

    def end(self, error: HoldfastError | None = None) -> None:
        """Decide nothing more here, and send the waiting clients to the next coordinator."""
        self._has_ended = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for group_id in list(self._ended):
            self._wake(group_id)
        for waiting in self._waiting.values():
            _resolve(waiting.future, waiting.refused(refusal(error)))
        self._waiting.clear()


def _error_of(response: Message) -> ErrorCode:
    return ErrorCode(getattr(response, "error_code", 0))


def _gives(response: Message) -> bool:
    """True if a response gives partitions to a member.

    A broker that has lost the lane, and does not know it yet, could give partitions that a newer
    coordinator has given to another member.
    """
    if isinstance(response, ConsumerGroupHeartbeatResponse):
        return response.assignment is not None
    return isinstance(response, SyncGroupResponse) and bool(response.assignment)


async def _outcome(barrier: asyncio.Future[None]) -> BaseException | None:
    """Wait for a barrier and return its error.

    Other callers wait for it too, so it is never awaited directly: their wait would be cancelled.
    """
    await asyncio.wait({barrier})
    return barrier.exception()


def _resolve(future: asyncio.Future[Any], result: Message) -> None:
    if not future.done():  # otherwise the client is gone
        future.set_result(result)
