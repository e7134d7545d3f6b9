"""One member of a sink: it fetches, lands and commits the partitions that its group assigns to it.

Owns the flows, one for each partition that is owned now. When a partition is revoked, intake stops.
What is open is sealed and landed within the time that the group leaves, less a margin. If it
landed, it is committed; otherwise it is abandoned, and the next owner of the partition reads it
again. When a partition is lost, everything is abandoned at once. Must never commit for a partition
that is not owned, and never hold up a rebalance for longer than it may.
"""

import asyncio
import logging
from collections.abc import Collection
from functools import partial
from typing import Final

from holdfast.client.admin import EARLIEST, LATEST, list_offset
from holdfast.client.cluster import Cluster
from holdfast.client.groups import committed_positions
from holdfast.client.membership.member import RunningMember
from holdfast.environment import Environment
from holdfast.errors import RetryError
from holdfast.landing.chain import Chain
from holdfast.landing.dead_letters import DeadLetters
from holdfast.landing.formats.interface import Format
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.sink.budget import Budget
from holdfast.sink.commits import SinkCommits
from holdfast.sink.counters import Counters
from holdfast.sink.encoder import Recipe
from holdfast.sink.flow import Aside, Chains, Flow, Shop
from holdfast.sink.intake import Intake
from holdfast.sink.log_end import LogEnd
from holdfast.sink.ownership import Ownership, Token
from holdfast.sink.settings import SinkSettings
from holdfast.sink.status import SinkStatus
from holdfast.sink.watched_store import WatchedStore

TICK_S: Final = 0.1
COMMIT_S: Final = 1.0
RETRY_S: Final = 0.5

log = logging.getLogger(__name__)


class SinkWorker:
    """The worker of one run of a member."""

    def __init__(
        self,
        settings: SinkSettings,
        *,
        control: Cluster,
        data: Cluster,
        store: WatchedStore,
        format: Format,
        environment: Environment,
        aside: Aside,
    ) -> None:
        self._settings = settings
        self._control = control
        self._store = store
        self._format = format
        self._environment = environment
        self._ownership = Ownership()
        self._counters = Counters()
        self._budget = Budget(settings.limits.memory_bytes)
        self._flows: dict[TopicPartition, Flow] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._end = LogEnd(control, settings)
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_stopping = False
        self.member = RunningMember(control, settings.member, self, environment=environment)
        self._commits = SinkCommits(self.member, self._ownership, self._counters)
        self._intake = Intake(
            data,
            lambda: self._flows.values(),
            self._budget,
            environment=environment,
            bytes_max=settings.fetch_max_bytes,
            wait_ms_max=settings.fetch_max_wait_ms,
            read_committed=settings.read_committed,
            covers_loss=settings.output.on_data_loss == "cover",
        )
        self._shop = Shop(
            recipe=Recipe(
                format=format,
                bounds=settings.batch,
                read_committed=settings.read_committed,
                fails_on_bad_records=settings.output.bad_records == "fail",
            ),
            aside=aside,
            now=environment.monotonic,
            uploads=asyncio.Semaphore(settings.limits.uploads),
            budget=self._budget,
            counters=self._counters,
            moved=self._intake.moved,
            failed=self._fail,
        )

    async def run(self, stop: asyncio.Event, *, once: bool) -> None:
        """Work until `stop` is set or (`once`) all that was in the log at the start has landed."""
        leave = asyncio.Event()
        parts = [
            asyncio.ensure_future(part)
            for part in (self._intake.run(), self._tick(stop, leave, once=once))
        ]
        membership = asyncio.ensure_future(self.member.run(leave))
        try:
            await asyncio.wait(
                [membership, self._failure, *parts], return_when=asyncio.FIRST_COMPLETED
            )
            for part in [self._failure, membership, *parts]:
                if part.done():
                    part.result()
        finally:
            for task in [*parts, membership]:
                task.cancel()
            await asyncio.gather(*parts, membership, return_exceptions=True)
            self._let_go(list(self._flows))
            await asyncio.gather(*self._ending, return_exceptions=True)
            if self._failure.done():
                _ = self._failure.exception()

    def status(self) -> SinkStatus:
        """Return the current status."""
        told = self.member.description
        counters = self._counters
        return SinkStatus(
            state="stopping" if self._is_stopping else told.state,
            member_id=told.member_id,
            epoch=told.epoch,
            partitions={where: flow.status() for where, flow in self._flows.items()},
            records_landed=counters.records_landed,
            bytes_fetched=counters.bytes_fetched,
            bytes_landed=counters.bytes_landed,
            objects_landed=counters.objects_landed,
            objects_found=counters.objects_found,
            bad_records=counters.bad_records,
            unreadable_batches=counters.unreadable_batches,
            batches_abandoned=counters.batches_abandoned,
            commits=counters.commits,
            commits_withheld=counters.commits_withheld,
            rebalances=counters.rebalances,
            held_bytes=self._budget.held,
            held_bytes_peak=self._budget.peak,
            fetch_paused=self._intake.is_paused,
            last_landed=counters.last_landed,
            store_problem=self._store.problem,
            store_problem_seconds=self._store.problem_seconds,
            broker_problem=self._intake.problem or self._commits.problem,
        )

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Start a flow for each partition, at once and independently of the others."""
        self._counters.rebalances += 1
        self._log("assigned", partitions)
        for where in partitions:
            token = self._ownership.take(where)
            self._flows[where] = self._flow(token)

    async def revoked(self, partitions: Collection[TopicPartition], seconds: float) -> None:
        """Land and commit what is open, within the time that is left; then let go."""
        self._log("revoked", partitions)
        margin = min(self._settings.limits.revoke_margin_ms / 1000, seconds / 2)
        flows = [self._flows[where] for where in partitions if where in self._flows]
        try:
            async with asyncio.timeout(max(0.0, seconds - margin)):
                await asyncio.gather(*(flow.finish() for flow in flows))
        except TimeoutError:
            late = [_name(flow.token.where) for flow in flows if flow.holds_records]
            log.warning("sink.revoke.abandoned partitions=%s", ",".join(late))
        try:
            async with asyncio.timeout(margin):
                await self._commits.commit(flows)
        except TimeoutError:
            log.warning("sink.revoke.commit_not_answered")
        finally:
            self._let_go(partitions)

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        """Let go of the partitions without a commit: other members may own them already."""
        self._log("lost", partitions)
        self._let_go(partitions)

    def _let_go(self, partitions: Collection[TopicPartition]) -> None:
        self._ownership.release(partitions)
        for where in partitions:
            flow = self._flows.pop(where, None)
            if flow is not None:
                ending = asyncio.ensure_future(flow.end())
                self._ending.add(ending)
                ending.add_done_callback(self._ending.discard)
        self._intake.moved()

    def _log(self, what: str, partitions: Collection[TopicPartition]) -> None:
        names = ",".join(sorted(_name(where) for where in partitions))
        log.info("sink.%s epoch=%d partitions=%s", what, self.member.description.epoch, names)

    def _flow(self, token: Token) -> Flow:
        topic, partition = token.where
        output = self._settings.output
        writer_id = self._environment.new_writer_id()
        chain = Chain(
            self._store,
            topic,
            partition,
            format=self._format,
            environment=self._environment,
            template=output.template,
            writer_id=writer_id,
        )
        dead = DeadLetters(
            self._store, topic, partition, template=output.template, environment=self._environment
        )
        return Flow(token, self._shop, Chains(chain, dead), lambda: self._begin(token, chain))

    async def _begin(self, token: Token, chain: Chain) -> int:
        """Return the end of the chain; without one, the committed offset or what the reset says."""
        while True:
            try:
                return await self._beginning(token, chain)
            except RetryError as error:
                self._note(token, str(error))
                await asyncio.sleep(RETRY_S)

    async def _beginning(self, token: Token, chain: Chain) -> int:
        where = token.where
        listed = partial(
            list_offset, self._control, *where, read_committed=self._settings.read_committed
        )
        group_id = self._settings.member.group_id
        found = await committed_positions(self._control, group_id, [where])
        committed = found[where].offset if where in found else None
        self._note(token, None, committed=committed)
        end = await chain.next_offset()
        if end is not None:
            return end
        if committed is not None:
            return committed
        at = LATEST if self._settings.offset_reset == "latest" else EARLIEST
        return (await listed(at=at)).offset

    def _note(self, token: Token, problem: str | None, *, committed: int | None = None) -> None:
        flow = self._flows.get(token.where)
        if flow is not None and flow.token == token:
            flow.problem = problem
            flow.committed = committed

    async def _tick(self, stop: asyncio.Event, leave: asyncio.Event, *, once: bool) -> None:
        """Do what is due by time: seal old batches, commit, and leave at the end."""
        next_commit = 0.0
        while True:
            now = self._environment.monotonic()
            self._seal_due(now)
            if now >= next_commit:
                next_commit = now + COMMIT_S
                await self._commits.commit(list(self._flows.values()))
            if stop.is_set() or (once and await self._is_all_there()):
                self._is_stopping = True
                leave.set()
            await asyncio.sleep(TICK_S)

    def _seal_due(self, now: float) -> None:
        age_s = self._settings.batch.age_ms / 1000
        flows = list(self._flows.values())
        for flow in flows:
            if flow.opened_at is not None and now - flow.opened_at >= age_s:
                flow.seal()
        if self._intake.is_paused and flows and not any(flow.has_cargo for flow in flows):
            # Open batches fill the budget, and no sealed batch is on its way to the store.
            max(flows, key=lambda flow: flow.open_bytes).seal()

    async def _is_all_there(self) -> bool:
        """True if all that was in the log at the start is encoded here or committed by others.

        What is only encoded is landed and committed when this member leaves.
        """
        try:
            goals = await self._end.goals()
            mine = {where: goals[where] for where in self._flows if where in goals}
            if not all(self._flows[where].has_taken(goal) for where, goal in mine.items()):
                return False
            return await self._end.is_committed(goals.keys() - mine.keys())
        except RetryError as error:
            log.info("sink.end_unknown error=%s", error)
            return False

    def _fail(self, error: Exception) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)


def _name(where: TopicPartition) -> str:
    return f"{where.topic}-{where.partition}"
