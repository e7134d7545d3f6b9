"""The shell around a core: it sends due requests, calls the `PartitionOwner`, watches the clock.

Owns the tasks of a membership: one request, one lookup of topics and one call of
`PartitionOwner.revoked` at a time, side by side, so that heartbeats continue whatever that does.
Must never decide anything about the protocol, or call a partition lost by its own clock: only the
coordinator's response does.
"""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from holdfast.client.cluster import Cluster
from holdfast.client.membership.answers import COORDINATOR_IS_ELSEWHERE, Applied
from holdfast.client.membership.commits import MembershipCommits
from holdfast.client.membership.core import Core, TopicsSeen
from holdfast.client.membership.interface import MemberSettings, PartitionOwner
from holdfast.client.membership.link import CoordinatorLink
from holdfast.client.membership.topics import compiled, look
from holdfast.client.refusals import RequestRefused
from holdfast.environment import Environment
from holdfast.errors import RetryError
from holdfast.protocol.message import Message

LOGGER = logging.getLogger("holdfast.client.membership")

BACKOFF_SECONDS_MIN = 0.05
BACKOFF_SECONDS_MAX = 1.0
BLIND_LOOK_SECONDS = 0.2
LEAVE_SECONDS = 5.0
NEWS_SECONDS = 5.0

T = TypeVar("T")


class Shell:
    """One membership, from join to leave."""

    def __init__(
        self,
        cluster: Cluster,
        settings: MemberSettings,
        owner: PartitionOwner,
        core: Core,
        environment: Environment,
    ) -> None:
        self.core = core
        self._cluster = cluster
        self._settings = settings
        self._owner = owner
        self._environment = environment
        self._pattern = compiled(settings)
        self._link = CoordinatorLink(cluster, settings.group_id)
        self.commits = MembershipCommits(core, self._link, settings, environment, self._hear)
        self._wake = asyncio.Event()
        self._asking: asyncio.Task[Message] | None = None
        self._looking: asyncio.Task[TopicsSeen] | None = None
        self._revoking: asyncio.Task[None] | None = None
        self._cancelled: asyncio.Task[None] | None = None
        """A call of `revoked` that was cancelled because its partitions are lost."""
        self._failures = 0
        self._blind_looks = 0
        self._ask_from = self._look_from = 0.0
        self._is_urgent = False
        self._news = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Run until stop; then revoke all partitions, and leave the group."""
        stopping = self._spawn(stop.wait())
        try:
            while True:
                now = self._environment.monotonic()
                self._reap(now)
                if stop.is_set():
                    self.core.stop(now)
                self._tell(now)
                if stop.is_set() and not self.core.held.owned:
                    break
                self._look_if_due(now)
                self._ask_if_due(now)
                await self._rest()
            await self._end(self._asking)
            await self._leave()
        finally:
            lost = self.core.held.lose()
            if lost:
                self._owner.lost(lost)
            for task in (stopping, self._asking, self._looking, self._revoking, self._cancelled):
                await self._end(task)
            await self._link.close()

    def _reap(self, now: float) -> None:
        """Take in the results of tasks that have ended since the last turn."""
        if self._cancelled is not None and self._cancelled.done():
            self._cancelled = None
        if self._revoking is not None and self._revoking.done():
            ended, self._revoking = self._revoking, None
            ended.result()
            self.core.given_up(now)
        if self._looking is not None and self._looking.done():
            looked, self._looking = self._looking, None
            try:
                self.core.see(looked.result(), now)
            except RetryError as error:
                self._look_from = self._postpone(now, "topics", error)
            else:
                if not self.core.is_blind:
                    self._look_from = now + self._settings.topics_interval_ms / 1000
        if self._asking is not None and self._asking.done():
            asked, self._asking = self._asking, None
            try:
                answer = asked.result()
            except RetryError as error:
                self.core.unanswered()
                self._link.forget()
                self._ask_from = self._postpone(now, "coordinator", error)
            else:
                self._take(self.core.apply(answer, now), now)
                self._news.set()

    def _take(self, applied: Applied, now: float) -> None:
        if applied.lost:
            LOGGER.warning("%s: %d partitions lost", self._settings.group_id, len(applied.lost))
            self._owner.lost(applied.lost)
            if self._revoking is not None:
                self._revoking.cancel()
                self._cancelled, self._revoking = self._revoking, None
        if applied.refused is not None:
            raise RequestRefused(
                applied.refused,
                f"group {self._settings.group_id!r}: {applied.refused.name}: {applied.detail}",
            )
        if applied.is_elsewhere:
            self._link.forget()
        if applied.is_postponed:
            self._ask_from = self._postpone(now, "coordinator", "it answers: not now")
        else:
            self._failures = 0

    def _tell(self, now: float) -> None:
        """Tell the `PartitionOwner` its next steps, unless it is still giving partitions up."""
        if self._revoking is not None or self._cancelled is not None:
            return
        while (step := self.core.held.step(now)) is not None:
            if step.assign:
                LOGGER.info("%s: %d assigned", self._settings.group_id, len(step.assign))
                self._owner.assigned(frozenset(held.name for held in step.assign))
            if step.revoke:
                LOGGER.info("%s: %d to revoke", self._settings.group_id, len(step.revoke))
                names = frozenset(held.name for held in step.revoke)
                self._revoking = self._spawn(self._owner.revoked(names, step.seconds))

    def _look_if_due(self, now: float) -> None:
        if not self.core.is_blind:
            self._blind_looks = 0
        if self._looking is None and now >= self._look_at():
            self._blind_looks += self.core.is_blind
            pause = self._settings.topics_interval_ms / 1000
            if self._blind_looks:
                pause = min(pause, BLIND_LOOK_SECONDS * 2 ** min(10, self._blind_looks - 1))
            self._look_from = now + pause
            topics, also = self._settings.topics, self.core.wants_topics
            self._looking = self._spawn(look(self._cluster, topics, self._pattern, also))

    def _look_at(self) -> float:
        """Return when the next lookup is due: at once for a core that has just become blind."""
        return 0.0 if self.core.is_blind and not self._blind_looks else self._look_from

    def _ask_if_due(self, now: float) -> None:
        if self._asking is None and now >= self._ask_at(now):
            self._is_urgent = False
            self._asking = self._spawn(self._ask())

    def _ask_at(self, now: float) -> float:
        due_at = self.core.due_at(now)
        if due_at is None:
            return float("inf")
        return max(now if self._is_urgent else due_at, self._ask_from)

    async def _ask(self) -> Message:
        while True:
            kind, is_slow = self.core.asks, self.core.is_slow
            connection = await self._link.connection(is_slow=is_slow)
            if kind is self.core.asks:
                break
        version = connection.version_for(kind)
        ask = self.core.ask(version)
        timeout_ms = self._cluster.request_timeout_ms
        if is_slow:
            timeout_ms += self._settings.rebalance_timeout_ms
        else:
            # This leaves time to find another coordinator before the session ends.
            timeout_ms = min(timeout_ms, self._settings.session_timeout_ms // 2)
        return await connection.request(
            ask.request, ask.answer, version=version, timeout_ms=timeout_ms
        )

    async def _rest(self) -> None:
        """Sleep until something is due, or a task has ended."""
        now = self._environment.monotonic()
        next_at = float("inf")
        if self._asking is None:
            next_at = self._ask_at(now)
        if self._looking is None:
            next_at = min(next_at, self._look_at())
        seconds = None if next_at == float("inf") else max(0.0, next_at - now)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()

    async def _hear(self) -> None:
        """Ask the coordinator out of turn, and wait a while for its response."""
        if self._asking is None:
            self._is_urgent = True
            self._wake.set()
        self._news.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(NEWS_SECONDS):
                await self._news.wait()

    async def _leave(self) -> None:
        """Leave; a coordinator that does not hear of it notices at the end of the session."""
        ask = self.core.farewell()
        if ask is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                while True:
                    try:
                        connection = await self._link.connection()
                        answer = await connection.request(ask.request, ask.answer)
                    except RetryError:
                        self._link.forget()
                    else:
                        if getattr(answer, "error_code", 0) not in COORDINATOR_IS_ELSEWHERE:
                            return
                        self._link.forget()
                    await asyncio.sleep(BACKOFF_SECONDS_MIN)

    def _postpone(self, now: float, what: str, error: object) -> float:
        self._failures += 1
        LOGGER.info("%s: %s: try %d: %s", self._settings.group_id, what, self._failures, error)
        pause = min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_MIN * 2 ** min(10, self._failures - 1))
        return now + pause * self._environment.random().uniform(0.5, 1.0)

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(lambda _: self._wake.set())
        return task

    @staticmethod
    async def _end(task: asyncio.Task[Any] | None) -> None:
        """Cancel the task, and wait until it has ended, however it ends."""
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
            _ = task.cancelled() or task.exception()
