"""One consumer group (KIP-848): heartbeats, and what time does to its members.

Pure: time is handed in, seconds on a clock that never goes back. Owns what is not durable: when
sessions end, and until when a member has to give up its partitions. Must never give a partition
to a member while another one owns it.
"""

import enum
from collections.abc import Callable
from uuid import UUID

import msgspec

from holdfast.errors import InvariantViolation
from holdfast.groups.assignors import ASSIGNORS, Subscriber
from holdfast.groups.caller import Caller
from holdfast.groups.consumer_checks import member_problem
from holdfast.groups.consumer_state import ConsumerState, reconciled_fact
from holdfast.groups.deadlines import NEVER
from holdfast.groups.facts import (
    ConsumerGroupEpochMoved,
    ConsumerMember,
    ConsumerMemberLeft,
    ConsumerMemberSubscribed,
    StaticConsumerReplaced,
    TargetAssigned,
)
from holdfast.groups.heartbeats import (
    assignment,
    is_full,
    is_leaving,
    reported_partitions,
    subscribed,
)
from holdfast.groups.outbox import GroupRules, Outbox
from holdfast.groups.reconciliation import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    MemberState,
    Standing,
    by_topic,
    reconciled,
)
from holdfast.groups.state import GroupsState
from holdfast.groups.topics import Topics
from holdfast.identifiers import PartitionId
from holdfast.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


class ConsumerPhase(enum.Enum):
    """Where a consumer group is; the names are Kafka's."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerGroup:
    """The soft state of one consumer group, over its durable part."""

    def __init__(
        self,
        group_id: str,
        state: GroupsState,
        outbox: Outbox,
        rules: GroupRules,
        now: float,
        now_ms: Callable[[], int],
    ) -> None:
        self.group_id = group_id
        self._state = state
        self._outbox = outbox
        self._rules = rules
        self._now_ms = now_ms
        self._sessions: dict[str, float] = {}
        self._revocations: dict[str, float] = {}
        """Until when members that have to give up partitions may take their time."""
        self._topics: Topics | None = None
        """What the target assignment has been compared with."""
        for member_id in self.durable.members:
            self._touch(member_id, now)
            self._await_revocation(member_id, now)

    @property
    def durable(self) -> ConsumerState:
        """What the facts say; nothing where nobody ever joined."""
        group = self._state.groups.get(self.group_id)
        found = group.consumers if group is not None else None
        return found if found is not None else ConsumerState()

    @property
    def phase(self) -> ConsumerPhase:
        durable = self.durable
        if not durable.members:
            return ConsumerPhase.EMPTY
        if durable.group_epoch > durable.assignment_epoch:
            return ConsumerPhase.ASSIGNING
        epoch = durable.assignment_epoch
        is_stable = all(standing.is_reconciled_to(epoch) for standing in durable.standings())
        return ConsumerPhase.STABLE if is_stable else ConsumerPhase.RECONCILING

    @property
    def is_idle(self) -> bool:
        """Nobody is in it."""
        return not self.durable.members

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        member_id: str,
        caller: Caller,
        topics: Topics,
        now: float,
    ) -> ConsumerGroupHeartbeatResponse:
        """A member joins, is alive, or goes; the request itself has been checked."""
        problem = member_problem(self.group_id, self.durable, request, member_id, self._rules)
        if problem is not None:
            return problem.response()
        if is_leaving(request):
            self._leave(request, member_id)
            return ConsumerGroupHeartbeatResponse(
                member_id=member_id, member_epoch=request.member_epoch
            )
        self._subscribe(request, member_id, caller)
        self._touch(member_id, now)
        self._follow(topics)
        self._assign(topics)
        reported = reported_partitions(request)
        before = self.durable.standing(member_id)
        after = self._reconcile(member_id, before, request)
        if after != before:
            self._await_revocation(member_id, now)
        is_news = (
            after.assigned != before.assigned
            or request.member_epoch != after.member_epoch
            or (reported is not None and reported != after.assigned)
        )
        return ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=after.member_epoch,
            heartbeat_interval_ms=self._rules.group_consumer_heartbeat_interval_ms,
            assignment=assignment(after.assigned) if is_news or is_full(request) else None,
        )

    def _subscribe(
        self, request: ConsumerGroupHeartbeatRequest, member_id: str, caller: Caller
    ) -> None:
        durable, instance_id = self.durable, request.instance_id
        is_joining = request.member_epoch == JOIN_EPOCH
        holder = durable.holder(instance_id) if is_joining and instance_id is not None else None
        known = durable.members.get(holder if holder is not None else member_id)
        client = (caller.client_id, caller.client_host)
        blank = ConsumerMember(member_id, None, None, *client, 0, [])
        member = subscribed(known or blank, request)
        if holder is not None and durable.standing(holder).member_epoch == STATIC_LEAVE_EPOCH:
            self._return(holder, _renamed(member, member_id, caller))
        elif member != known:
            is_moved = known is None or _wish(known) != _wish(member)
            epoch = durable.group_epoch + is_moved
            self._outbox.decide(ConsumerMemberSubscribed(self.group_id, member, epoch))

    def _return(self, holder: str, member: ConsumerMember) -> None:
        """A static member is back, and has the place that was kept for it."""
        durable = self.durable
        is_moved = _wish(durable.members[holder]) != _wish(member)
        epoch = durable.group_epoch + is_moved
        self._outbox.decide(StaticConsumerReplaced(self.group_id, holder, member, epoch))
        self._forget(holder)

    def _follow(self, topics: Topics) -> None:
        """Notice that subscribed topics have come, gone or grown: a new target is due then."""
        durable = self.durable
        if topics is self._topics or durable.group_epoch > durable.assignment_epoch:
            return
        self._topics = topics
        wanted = {
            PartitionId(topic_id, number)
            for member in durable.members.values()
            for topic_id, count in topics.wanted_by(member).items()
            for number in range(count)
        }
        if wanted != set[PartitionId]().union(*durable.targets.values()):
            self._outbox.decide(ConsumerGroupEpochMoved(self.group_id, durable.group_epoch + 1))

    def _assign(self, topics: Topics) -> None:
        """Make the target assignment of the group epoch, where it is not made yet."""
        durable = self.durable
        if durable.group_epoch <= durable.assignment_epoch:
            return
        partitions: dict[UUID, int] = {}
        members: list[Subscriber] = []
        for member_id, member in durable.members.items():
            wanted = topics.wanted_by(member)
            partitions |= wanted
            target = durable.targets[member_id]
            members.append(Subscriber(member_id, member.instance_id, frozenset(wanted), target))
        assignor = durable.chosen_assignor()
        ordered = {topic_id: partitions[topic_id] for topic_id in sorted(partitions)}
        targets = ASSIGNORS[assignor](members, ordered)
        changed = [(i, by_topic(t)) for i, t in targets.items() if durable.targets[i] != t]
        self._outbox.decide(TargetAssigned(self.group_id, durable.group_epoch, assignor, changed))
        self._topics = topics

    def _reconcile(
        self, member_id: str, before: Standing, request: ConsumerGroupHeartbeatRequest
    ) -> Standing:
        durable = self.durable
        after = reconciled(
            before,
            durable.target(member_id),
            reported_partitions(request),
            lambda partition: partition not in durable.owners,
        )
        for partition in after.assigned:
            owner = durable.owners.get(partition, member_id)
            if owner != member_id:
                raise InvariantViolation(
                    f"group {self.group_id}: {partition} would be given to {member_id} in member"
                    f" epoch {after.member_epoch}, but {owner} owns it"
                )
        if after != before:
            self._outbox.decide(reconciled_fact(self.group_id, member_id, after))
        return after

    def _leave(self, request: ConsumerGroupHeartbeatRequest, member_id: str) -> None:
        if request.member_epoch == LEAVE_EPOCH:
            self._remove(member_id)
            return
        standing = self.durable.standing(member_id).left_for_a_while()
        self._outbox.decide(reconciled_fact(self.group_id, member_id, standing))
        self._revocations.pop(member_id, None)

    def _remove(self, member_id: str) -> None:
        epoch = self.durable.group_epoch + 1
        self._outbox.decide(ConsumerMemberLeft(self.group_id, member_id, epoch, self._now_ms()))
        self._forget(member_id)

    def _forget(self, member_id: str) -> None:
        self._sessions.pop(member_id, None)
        self._revocations.pop(member_id, None)

    def _touch(self, member_id: str, now: float) -> None:
        self._sessions[member_id] = now + self._rules.group_consumer_session_timeout_ms / 1000

    def _await_revocation(self, member_id: str, now: float) -> None:
        durable = self.durable
        if durable.standing(member_id).state is MemberState.UNREVOKED_PARTITIONS:
            timeout_ms = durable.members[member_id].rebalance_timeout_ms
            self._revocations[member_id] = now + timeout_ms / 1000
        else:
            self._revocations.pop(member_id, None)

    def next_deadline(self) -> float:
        """When `tick` may have something to do."""
        return min([*self._sessions.values(), *self._revocations.values()], default=NEVER)

    def tick(self, now: float) -> None:
        """Fence out who was silent, or did not give up its partitions, for too long."""
        for deadlines in (self._sessions, self._revocations):
            for member_id in [i for i, at in deadlines.items() if at <= now]:
                self._remove(member_id)

    def subscribed_names(self, topics: Topics) -> set[str]:
        """The names of the topics that members want, whether they are there or not."""
        found: set[str] = set()
        for member in self.durable.members.values():
            found.update(member.topic_names)
            found.update(topics.matching(member.topic_regex) if member.topic_regex else ())
        return found


def _wish(member: ConsumerMember) -> object:
    """What a target assignment depends on."""
    return (member.topic_names, member.topic_regex, member.assignor, member.instance_id)


def _renamed(member: ConsumerMember, member_id: str, caller: Caller) -> ConsumerMember:
    return msgspec.structs.replace(
        member, member_id=member_id, client_id=caller.client_id, client_host=caller.client_host
    )
