"""The groups of one lane, live: requests that wait, deadlines, and answers that leave when durable.

Owns the wiring between the pure coordinator, the lane and the clock. Must never let an answer
leave while something that was decided about its group may still be undone by a crash.
"""

import asyncio
import itertools
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar, cast

from holdfast.broker.leadership import coordinator_error, coordinator_problem, needs_proof
from holdfast.environment import Environment
from holdfast.errors import Fenced, HoldfastError
from holdfast.groups.coordinator import GroupCoordinator
from holdfast.groups.deadlines import NEVER
from holdfast.groups.facts import GroupFact
from holdfast.groups.outbox import GroupRules, Token
from holdfast.identifiers import LaneId
from holdfast.log.data_lane import DataLane
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.message import Message
from holdfast.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from holdfast.protocol.messages.sync_group import SyncGroupResponse

MessageT = TypeVar("MessageT", bound=Message)
TIMER_SECONDS_MAX = 3_600.0
FIRST_DATA_LANE = 1


def lane_of(name: str, lanes: int) -> LaneId:
    """The lane that coordinates a group, or a transactional id; never changes for a store."""
    return LaneId(FIRST_DATA_LANE + zlib.crc32(name.encode()) % lanes)


def refusal(error: BaseException | None) -> ErrorCode:
    """What a client is told when its coordinator ends: look for the new one, or try again."""
    if error is None or isinstance(error, Fenced):
        return ErrorCode.NOT_COORDINATOR
    return ErrorCode.COORDINATOR_NOT_AVAILABLE


class _Waiting(NamedTuple):
    """A request that is not answered yet."""

    group_id: str
    refused: Callable[[ErrorCode], Message]
    future: asyncio.Future[Message]


class LaneGroups:
    """The coordinator of a lane's groups, at work."""

    def __init__(self, lane: DataLane, environment: Environment, rules: GroupRules) -> None:
        self._lane = lane
        self._environment = environment
        self._tokens: Iterator[int] = itertools.count()
        self._waiting: dict[Token, _Waiting] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self._leaving: set[asyncio.Task[None]] = set()
        self._has_ended = False
        self.coordinator = GroupCoordinator(
            lane.state.groups,
            self,
            rules,
            now=environment.monotonic(),
            now_ms=environment.now_ms,
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
        """Why nothing can be decided here any more."""
        if self._lane.appender.is_open and not self._has_ended:
            return None
        return refusal(self._lane.appender.failure)

    def decide(self, fact: GroupFact) -> None:
        self._lane.appender.add(fact)

    async def ask(
        self,
        group_id: str,
        question: Callable[[Token], None],
        refused: Callable[[ErrorCode], MessageT],
    ) -> MessageT:
        """Put a question to the coordinator, and wait for its answer to be allowed to leave."""
        problem = self.problem()
        if problem is not None:
            return refused(problem)
        token = Token(next(self._tokens))
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[token] = _Waiting(group_id, refused, future)
        question(token)
        self._set_timer()
        return cast(MessageT, await future)

    def answer(self, token: Token, response: Message) -> None:
        waiting = self._waiting.pop(token)
        barrier = self._barrier(waiting.group_id)
        if barrier is None and not self._needs_proof(response):
            _resolve(waiting.future, response)
            return
        task = asyncio.get_running_loop().create_task(self._leave(waiting, response, barrier))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _barrier(self, group_id: str) -> asyncio.Future[None] | None:
        if self._lane.state.groups.is_settled(group_id):
            return None
        return self._lane.appender.barrier()

    async def _leave(
        self, waiting: _Waiting, response: Message, barrier: asyncio.Future[None] | None
    ) -> None:
        error = await _outcome(barrier) if barrier is not None else None
        if error is not None:
            response = waiting.refused(refusal(error))
        problem = await coordinator_problem(self._lane) if self._needs_proof(response) else None
        _resolve(waiting.future, response if problem is None else waiting.refused(problem))

    def _needs_proof(self, response: Message) -> bool:
        """Also of an answer that gives partitions: a newer coordinator may have given them away."""
        error = ErrorCode(getattr(response, "error_code", 0))
        if error is ErrorCode.NONE and _gives_partitions(response):
            return not self._lane.appender.is_valid()
        return needs_proof(self._lane, error)

    async def settled(self, group_id: str) -> ErrorCode | None:
        """Wait until all that was decided about a group is durable, or say why it is not."""
        self._set_timer()
        barrier = self._barrier(group_id)
        error = await _outcome(barrier) if barrier is not None else None
        return refusal(error) if error is not None else None

    async def vouched(self, group_id: str, told: ErrorCode) -> ErrorCode | None:
        """As settled, for an answer with a refusal, which only the newest coordinator may give."""
        problem = await self.settled(group_id)
        if problem is None:
            proven = await coordinator_error(self._lane, told)
            problem = proven if proven is not told else None
        return problem

    def _set_timer(self) -> None:
        """Have the coordinator looked at when it says so; too early harms nobody."""
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
        """Nothing more is decided here; who waits is sent to the next coordinator."""
        self._has_ended = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for waiting in self._waiting.values():
            _resolve(waiting.future, waiting.refused(refusal(error)))
        self._waiting.clear()


def _gives_partitions(response: Message) -> bool:
    match response:
        case SyncGroupResponse():
            return True
        case ConsumerGroupHeartbeatResponse(assignment=given):
            return given is not None
        case _:
            return False


async def _outcome(barrier: asyncio.Future[None]) -> BaseException | None:
    """How a barrier ended; others wait for it too, so it is never awaited bare."""
    await asyncio.wait({barrier})
    return barrier.exception()


def _resolve(future: asyncio.Future[Any], result: Message) -> None:
    if not future.done():  # or its client is gone
        future.set_result(result)
