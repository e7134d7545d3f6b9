"""The behaviour that members of both group protocols share: read, commit, and resume.

Owns what a member believes it owns, and the bug that some members have on purpose: they commit
partitions that they have lost. Must never look into a broker.
"""

from collections.abc import Iterable
from typing import Any

from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages import offset_commit, offset_fetch
from holdfast.verify.vocabulary import (
    CommitOffsets,
    FetchOffsets,
    OffsetsTaken,
    OffsetsTold,
    Partition,
)
from simulation.clients.client import CallRefused, SimulatedClients
from simulation.clients.transaction_requests import refusal, taken
from simulation.clients.workload import Consumer
from simulation.observed_decisions import commit_in

COMMIT_VERSION = 9
FETCH_VERSION = 9
WAIT_MS = 20
"""The longest wait of a fetch: short, because a member has other things to do."""
LOSES_MEMBERSHIP = frozenset(("ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH"))


class SimulatedMember(Consumer):
    """A group member, with what it believes about its membership."""

    def __init__(
        self,
        clients: SimulatedClients,
        name: str,
        group: str,
        *,
        instance: str | None,
        is_late: bool,
    ) -> None:
        super().__init__(clients, name)
        self.wait_ms = WAIT_MS
        self.group = group
        self.instance = instance
        self.is_late = is_late
        self.member_id = ""
        self.generation = -1
        self.positions: dict[Partition, int] = {}
        """Where the member continues to read, for each owned partition whose position is known."""
        self.unplaced: set[Partition] = set()
        """Owned partitions whose position is not known yet."""
        self.lost: dict[Partition, int] = {}
        """Partitions that a member with the bug (`is_late`) has lost, and its positions there."""
        self.is_gone = False
        clients.groups.add(group)

    @property
    def owned(self) -> set[Partition]:
        return self.unplaced.union(self.positions)

    def chance(self, share: float) -> bool:
        return self.clients.chance.random() < share

    def lose(self, partitions: Iterable[Partition]) -> None:
        """Stop owning partitions, which another member or none owns now."""
        for partition in list(partitions):
            self.unplaced.discard(partition)
            position = self.positions.pop(partition, None)
            if position is not None and self.is_late:
                self.lost[partition] = position

    def own(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            self.lost.pop(partition, None)
            self.unplaced.add(partition)

    async def work(self) -> None:
        """Read from all owned partitions, and commit sometimes."""
        await self.place()
        for partition in sorted(self.positions):
            reading = await self.read(partition, self.positions[partition])
            if partition in self.positions:
                self.positions[partition] = reading.next_offset
        if self.positions and self.chance(0.7):
            await self.commit(self.positions)
        if self.lost and self.chance(0.5):
            await self.commit(self.lost)

    async def place(self) -> None:
        """Find out where to read newly owned partitions."""
        if not self.unplaced:
            return
        told = await self.committed(sorted(self.unplaced))
        for partition, offset, _ in told.offsets if told is not None else ():
            if partition in self.unplaced:
                self.unplaced.discard(partition)
                self.positions[partition] = max(0, offset)

    async def commit(self, positions: dict[Partition, int]) -> OffsetsTaken | None:
        """Commit positions with the member id and generation that this member believes to be its
        own."""
        commit = self.clients.new_number()
        offsets = tuple(sorted(positions.items()))
        request = offset_commit.OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            topics=[
                offset_commit.OffsetCommitRequestTopic(
                    name=partition.rpartition("/")[0],
                    partitions=[
                        offset_commit.OffsetCommitRequestPartition(
                            partition_index=int(partition.rpartition("/")[2]),
                            committed_offset=offset,
                            committed_metadata=str(commit),
                        )
                    ],
                )
                for partition, offset in offsets
            ],
        )
        operation = CommitOffsets(self.group, self.member_id, self.generation, commit, offsets)
        call, answer = await self.request(self.group, operation, request, COMMIT_VERSION, taken)
        if isinstance(answer, OffsetsTaken):
            self.ok(call, answer)
            return answer
        self.heed(answer)
        return None

    async def committed(self, partitions: list[Partition]) -> OffsetsTold | None:
        """Return what the group has committed, or None if the request failed."""
        call, answer = await fetch_offsets(self, self.group, partitions, self)
        if isinstance(answer, OffsetsTold):
            self.ok(call, answer)
            return answer
        return None

    def heed(self, answer: Any) -> None:
        """Update the member's beliefs after a refusal; each protocol adds its own rules."""
        if isinstance(answer, CallRefused) and answer.error == "FENCED_INSTANCE_ID":
            self.is_gone = True


class OffsetsPoller(Consumer):
    """A client that keeps asking for a group's committed offsets, sometimes at another broker."""

    async def watch(self, group: str, partitions: list[Partition], pause_s: float) -> None:
        self.clients.groups.add(group)
        while not self.clients.is_over:
            if self.clients.chance.random() < 0.3:
                self.forget(group)
            call, answer = await fetch_offsets(self, group, partitions)
            if isinstance(answer, OffsetsTold):
                self.ok(call, answer)
            await self.pause(0.0, pause_s)


async def fetch_offsets(
    client: Consumer, group: str, partitions: list[Partition], member: SimulatedMember | None = None
) -> Any:
    """Send one OffsetFetch for stable offsets, which no open transaction can change."""
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topic, _, number = partition.rpartition("/")
        topics.setdefault(topic, []).append(int(number))
    asked = offset_fetch.OffsetFetchRequestGroup(
        group_id=group,
        topics=[
            offset_fetch.OffsetFetchRequestTopics(name=name, partition_indexes=numbers)
            for name, numbers in topics.items()
        ],
    )
    if member is not None:
        asked.member_id, asked.member_epoch = member.member_id, member.generation
    request = offset_fetch.OffsetFetchRequest(groups=[asked], require_stable=True)
    operation = FetchOffsets(group, tuple(partitions))
    return await client.request(group, operation, request, FETCH_VERSION, _told)


def _told(response: offset_fetch.OffsetFetchResponse) -> OffsetsTold | CallRefused:
    group = response.groups[0]
    found: list[tuple[Partition, int, int]] = []
    for topic in group.topics:
        for part in topic.partitions:
            if part.error_code and not group.error_code:
                return CallRefused(ErrorCode(part.error_code).name)
            commit = commit_in(part.metadata)
            found.append((f"{topic.name}/{part.partition_index}", part.committed_offset, commit))
    return refusal(group.error_code) or OffsetsTold(tuple(found))
