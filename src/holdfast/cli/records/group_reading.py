"""A member of a consumer group that reads one topic and commits what was written out.

Owns the membership, and the positions that may be committed. When a partition is revoked, stops
writing out its records, then commits up to the last one written. Must never commit an offset that
was not written out.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Collection

import click

from holdfast.client.cluster import Cluster
from holdfast.client.groups import committed_positions
from holdfast.client.membership.interface import MemberSettings
from holdfast.client.membership.member import RunningMember
from holdfast.client.reader import AtOffset, Start, TopicReader, start_offsets
from holdfast.errors import RetryError
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.consumer_protocol import TopicPartition

COMMIT_S = 5.0
PAUSE_S = 0.05
EMPTY_S = 10.0
"""How long a member without partitions waits for one before it ends."""
REBALANCE_MS = 30_000


class GroupReading:
    """An async context manager for a membership: joins on entry, commits and leaves on exit."""

    def __init__(
        self,
        cluster: Cluster,
        reader: TopicReader,
        *,
        group: str,
        topic: str,
        start: Start,
        follows: bool,
        read_committed: bool,
    ) -> None:
        self._cluster = cluster
        self._reader = reader
        self._group = group
        self._start = start
        self._follows = follows
        self._read_committed = read_committed
        self._new: set[TopicPartition] = set()
        self._written: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._commit_at = 0.0
        self._empty_since: float | None = None
        self._writing = asyncio.Lock()
        self._leave = asyncio.Event()
        settings = MemberSettings(
            group_id=group, topics=(topic,), rebalance_timeout_ms=REBALANCE_MS
        )
        self._member = RunningMember(cluster, settings, self, environment=cluster.environment)
        self._membership: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "GroupReading":
        self._membership = asyncio.ensure_future(self._member.run(self._leave))
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        self._leave.set()
        if self._membership is not None:
            await self._membership

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Read these partitions, too, from the next round on."""
        self._new |= set(partitions)

    async def revoked(self, partitions: Collection[TopicPartition], seconds: float) -> None:
        """Stop reading the partitions, and commit what was written of them."""
        async with self._writing:
            self._let_go(partitions)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds / 2):
                await self._commit(partitions)
        self._forget(partitions)

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        """Stop reading the partitions, without a commit: another member may own them already."""
        self._let_go(partitions)
        self._forget(partitions)

    def _let_go(self, partitions: Collection[TopicPartition]) -> None:
        self._new -= set(partitions)
        for where in partitions:
            self._reader.remove(where.partition)

    def _forget(self, partitions: Collection[TopicPartition]) -> None:
        for where in partitions:
            self._written.pop(where, None)
            self._committed.pop(where, None)

    @contextlib.asynccontextmanager
    async def hold(self, where: TopicPartition) -> AsyncGenerator[bool]:
        """Yield whether the partition is owned. A revoke of it waits until the block ends."""
        async with self._writing:
            yield where.partition in self._reader.positions

    def written(self, where: TopicPartition, position: int) -> None:
        """Record that everything before this offset was written out, and may be committed."""
        self._reader.move(where.partition, position)
        self._written[where] = position

    async def is_done(self) -> bool:
        """True if all owned partitions were read to the end that they had when they were assigned.

        Also true if the membership has ended, or brought no partition for EMPTY_S.
        """
        if self._membership is not None and self._membership.done():
            self._membership.result()
            return True
        if self._follows or self._new or self._reader.unfinished:
            self._empty_since = None
            return False
        if self._reader.positions:
            return True
        if self._member.description.state != "stable":
            return False
        now = self._cluster.environment.monotonic()
        self._empty_since = now if self._empty_since is None else self._empty_since
        return now - self._empty_since >= EMPTY_S

    async def rest(self) -> None:
        """Do what is due between two rounds: take new partitions, commit, pause if all is read."""
        if self._new:
            await self._begin()
        now = self._cluster.environment.monotonic()
        if now >= self._commit_at:
            self._commit_at = now + COMMIT_S
            await self._commit(list(self._written))
        if not self._reader.unfinished:
            await asyncio.sleep(PAUSE_S)

    async def _begin(self) -> None:
        """Start new partitions at their committed offset, or at the start position without one."""
        new = list(self._new)
        try:
            committed = await committed_positions(self._cluster, self._group, new)
            starts: dict[TopicPartition, Start] = {
                where: AtOffset(committed[where].offset) if where in committed else self._start
                for where in new
            }
            found = await start_offsets(self._cluster, starts, read_committed=self._read_committed)
        except RetryError:
            return  # They stay new, and the next round tries again.
        for where in self._new & found.keys():
            position, end = found[where]
            self._reader.add(where.partition, position, None if self._follows else end)
        self._new -= found.keys()

    async def _commit(self, partitions: Collection[TopicPartition]) -> None:
        due = {
            where: self._written[where]
            for where in partitions
            if where in self._written and self._written[where] != self._committed.get(where)
        }
        answers = await self._member.commit(due)
        for where, code in answers.items():
            if code == ErrorCode.NONE:
                self._committed[where] = due[where]
            elif code != ErrorCode.STALE_MEMBER_EPOCH:
                click.echo(
                    f"holdfast: {where.topic}-{where.partition}: offset {due[where]} was not"
                    f" committed: {code.name}",
                    err=True,
                )
