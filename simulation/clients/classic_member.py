"""Simulated members of classic groups: eager or cooperative, static or not.

Owns how such a member behaves, including the assignment that a leader makes, which differs each
time. Some members pause past their session timeout, crash, or leave and come back.
"""

from typing import Any

from holdfast.protocol.consumer_protocol import PROTOCOL_TYPE
from holdfast.protocol.messages import heartbeat, join_group, leave_group, sync_group
from holdfast.verify.history import Done, Operation
from holdfast.verify.vocabulary import (
    Assigned,
    Heartbeat,
    JoinAnswer,
    JoinGroup,
    LeaveGroup,
    Partition,
    SyncGroup,
)
from simulation.clients import consumer_bytes
from simulation.clients.client import CallRefused, SimulatedClients
from simulation.clients.member import LOSES_MEMBERSHIP, SimulatedMember
from simulation.clients.transaction_requests import refusal
from simulation.observed_decisions import partitions_in

SESSION_MS = 1_200
REBALANCE_MS = 1_500
JOIN_VERSION = 9
SYNC_VERSION = 5
HEARTBEAT_VERSION = 4
LEAVE_VERSION = 5
PROTOCOL = "simulated"


class SimulatedClassicMember(SimulatedMember):
    """A member of a classic group."""

    def __init__(
        self,
        clients: SimulatedClients,
        name: str,
        group: str,
        partitions: list[Partition],
        *,
        instance: str | None,
        is_late: bool,
        is_cooperative: bool,
    ) -> None:
        super().__init__(clients, name, group, instance=instance, is_late=is_late)
        self.partitions = partitions
        self._is_cooperative = is_cooperative
        self._must_join = True

    async def take_part(self, pause_s: float) -> None:
        """Take part until the simulation is over, or another process has the instance id."""
        await self.pause(0.0, 2 * pause_s)
        while not self.clients.is_over and not self.is_gone:
            if self._must_join:
                await self.rebalance()
            else:
                await self.beat()
                await self.work()
            await self.misbehave()
            await self.pause(0.0, pause_s)

    async def misbehave(self) -> None:
        """Sometimes pause, crash, or leave for a while; mostly do nothing."""
        draw = self.clients.chance.random()
        if draw < 0.05:
            await self.pause(0.5, 3.0)
        elif draw < 0.08:
            self.forget_all()
        elif draw < 0.11:
            await self._leave()
            self.forget_all()
            await self.pause(0.2, 2.0)

    def forget_all(self) -> None:
        """Become a new process, which has nothing but the instance id."""
        self.positions.clear()
        self.unplaced.clear()
        self.lost.clear()
        self.member_id, self.generation = "", -1
        self._must_join = True

    async def rebalance(self) -> None:
        """Join and sync; the next call tries again if that fails."""
        if not self._is_cooperative:
            if self.positions and self.chance(0.5):
                await self.commit(self.positions)
            self.lose(self.owned)
        answer = await self._join()
        if answer is None:
            return
        given = self._assign(answer)
        told = await self._sync(given)
        if told is None or told.partitions is None:
            return
        self._must_join = False
        await self._adopt(set(told.partitions))

    async def _adopt(self, wanted: set[Partition]) -> None:
        revoked = {p: o for p, o in self.positions.items() if p not in wanted}
        if revoked and self.chance(0.6):
            await self.commit(revoked)
        added = wanted - self.owned
        self.lose(self.owned - wanted)
        self.own(added)
        if revoked and self._is_cooperative:
            self._must_join = True  # so that the revoked partitions get an owner

    async def _join(self) -> join_group.JoinGroupResponse | None:
        metadata = consumer_bytes.subscription(
            sorted({p.rpartition("/")[0] for p in self.partitions}), self.owned
        )
        request = join_group.JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=PROTOCOL_TYPE,
            protocols=[join_group.JoinGroupRequestProtocol(name=PROTOCOL, metadata=metadata)],
        )

        def understand(response: join_group.JoinGroupResponse) -> Any:
            if response.error_code and response.member_id:
                return response.member_id, refusal(response.error_code)
            return refusal(response.error_code) or response

        operation = JoinGroup(self.group, self.member_id)
        call, answer = await self.request(
            self.group, operation, request, JOIN_VERSION, lambda r: _unwrapped(understand(r))
        )
        if isinstance(answer, CallRefused):
            self.heed(answer)
        if isinstance(answer, MemberIdRequired):
            self.clients.recorder.fail(call, "MEMBER_ID_REQUIRED", self.clients.loop.time())
            self.member_id = answer.member_id
        if not isinstance(answer, join_group.JoinGroupResponse):
            return None
        self.ok(call, JoinAnswer(answer.member_id, answer.generation_id, answer.leader))
        self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    def _assign(self, joined: join_group.JoinGroupResponse) -> dict[str, bytes]:
        """Make the assignment if this is the leader: different each time, in two steps if
        cooperative."""
        if joined.leader != self.member_id or joined.skip_assignment or not joined.members:
            return {}
        owned = {
            partition: member.member_id
            for member in joined.members
            for partition in consumer_bytes.owned_in(bytes(member.metadata))
        }
        members = sorted(member.member_id for member in joined.members)
        first = int(self.clients.chance.random() * len(members))
        given: dict[str, list[Partition]] = {member: [] for member in members}
        for number, partition in enumerate(self.partitions):
            member = members[(first + number) % len(members)]
            if not self._is_cooperative or owned.get(partition, member) == member:
                given[member].append(partition)
        return {member: consumer_bytes.assignment(given[member]) for member in members}

    async def _sync(self, given: dict[str, bytes]) -> Assigned | None:
        request = sync_group.SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
            assignments=[
                sync_group.SyncGroupRequestAssignment(member_id=member, assignment=data)
                for member, data in given.items()
            ],
        )
        member_id, generation = self.member_id, self.generation

        def understand(response: sync_group.SyncGroupResponse) -> Any:
            return refusal(response.error_code) or Assigned(
                member_id, generation, partitions_in(bytes(response.assignment))
            )

        operation = SyncGroup(self.group, member_id, generation)
        return await self._ask(operation, request, SYNC_VERSION, understand)

    async def beat(self) -> None:
        """Send a heartbeat, whose answer may say that the member must join again."""
        request = heartbeat.HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        operation = Heartbeat(self.group, self.member_id, self.generation)
        await self._ask(operation, request, HEARTBEAT_VERSION, _done)

    async def _leave(self) -> None:
        identity = leave_group.MemberIdentity(
            member_id=self.member_id, group_instance_id=self.instance
        )
        request = leave_group.LeaveGroupRequest(group_id=self.group, members=[identity])
        operation = LeaveGroup(self.group, self.member_id)
        await self._ask(operation, request, LEAVE_VERSION, _done)

    async def _ask(self, operation: Operation, request: Any, version: int, understand: Any) -> Any:
        call, answer = await self.request(self.group, operation, request, version, understand)
        if answer is None or isinstance(answer, CallRefused):
            self.heed(answer)
            return None
        self.ok(call, answer)
        return answer

    def heed(self, answer: Any) -> None:
        super().heed(answer)
        if not isinstance(answer, CallRefused):
            return
        if answer.error in ("REBALANCE_IN_PROGRESS", *LOSES_MEMBERSHIP):
            self._must_join = True
        if answer.error in LOSES_MEMBERSHIP:
            self.lose(self.owned)
        if answer.error == "UNKNOWN_MEMBER_ID":
            self.member_id, self.generation = "", -1


class MemberIdRequired:
    """The answer of a broker that has made up a member id, with which the member must join
    again."""

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id


def _unwrapped(understood: Any) -> Any:
    match understood:
        case (str(member_id), CallRefused(error="MEMBER_ID_REQUIRED")):
            return MemberIdRequired(member_id)
        case (str(), CallRefused() as refused):
            return refused
        case _:
            return understood


def _done(response: Any) -> Any:
    return refusal(response.error_code) or Done()
