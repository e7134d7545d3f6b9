"""One consumer group (KIP-848): heartbeats and timeouts of its members.

Pure: time is passed in, as seconds on a clock that never goes back. Owns what is not durable: when
sessions end, and until when a member must give up its partitions. Must never give a partition to a
member while another one owns it.
"""

import enum
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from holdfast.errors import InvariantViolation
from holdfast.groups.caller import Caller
from holdfast.groups.consumer.checks import member_problem
from holdfast.groups.consumer.heartbeats import (
    assignment,
    is_full,
    is_leaving,
    reported_partitions,
    subscribed,
)
from holdfast.groups.consumer.reconciliation import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    MemberStanding,
    MemberState,
    Partitions,
    reconciled,
)
from holdfast.groups.consumer.state import ConsumerState, reconciled_fact
from holdfast.groups.consumer.targets import is_outdated, target_of, wish
from holdfast.groups.deadlines import NEVER, MemberDeadlines
from holdfast.groups.facts import (
    ConsumerGroupEpochMoved,
    ConsumerMember,
    ConsumerMemberLeft,
    ConsumerMemberSubscribed,
    StaticConsumerReplaced,
)
from holdfast.groups.outbox import Outbox
from holdfast.groups.rules import GroupRules
from holdfast.groups.state import GroupsState
from holdfast.groups.topics import Topics
from holdfast.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

PROMPT_MEMBERS_MAX = 100
"""A group of at most this many members gets a new target assignment at once. In a larger group many
joins share one, because other requests wait while it is made."""


class ConsumerPhase(enum.Enum):
    """The state of a consumer group; the names are Kafka's."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class MemberStep(NamedTuple):
    """The standing of a member before and after its step."""

    before: MemberStanding
    after: MemberStanding


class ConsumerGroup:
    """The state of one consumer group that is not durable, on top of its durable part."""

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
        self._sessions = MemberDeadlines()
        self._overdue = MemberDeadlines()
        """Deadlines of members that must give up partitions, join or sync."""
        self.topics = Topics({})
        """The topics as of the last request to the group, with what its members' expressions
        match."""
        self._assigned_at = -NEVER
        """When this object made its last target assignment."""
        self._target_due_at = NEVER
        """When the next target assignment is to be made, if it was put off."""
        self._compared: object = None
        """The topics, by name, that the target assignment has been compared with."""
        for member_id in self.durable.members:
            self.touch(member_id, now)
            self._await_revocation(member_id, now)

    @property
    def durable(self) -> ConsumerState:
        """The durable part of the group; empty if no member ever joined."""
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
        """True if the group has no members."""
        return not self.durable.members

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        member_id: str,
        caller: Caller,
        topics: Topics,
        now: float,
    ) -> ConsumerGroupHeartbeatResponse:
        """Take a heartbeat by which a member joins, stays or leaves; its fields are checked."""
        problem = member_problem(self.group_id, self.durable, request, member_id, self._rules)
        if problem is not None:
            return problem.response()
        if is_leaving(request):
            self._leave(request, member_id)
            return ConsumerGroupHeartbeatResponse(
                member_id=member_id, member_epoch=request.member_epoch
            )
        self._subscribe(request, member_id, caller)
        self.touch(member_id, now)
        reported = reported_partitions(request)
        before, after = self.advance(member_id, reported, topics, now)
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
        has_left = (
            holder is not None and durable.standing(holder).member_epoch == STATIC_LEAVE_EPOCH
        )
        if holder is not None and (has_left or holder != member_id):
            member = msgspec.structs.replace(
                member, member_id=member_id, client_id=client[0], client_host=client[1]
            )
            self.replace_static(holder, member)
        else:
            self.subscribe(member)

    def subscribe(self, member: ConsumerMember) -> None:
        """Take in a member; a new target assignment is due if it is new or wants other topics."""
        known = self.durable.members.get(member.member_id)
        if member != known:
            is_moved = known is None or wish(known) != wish(member)
            self._forget(member.member_id)
            epoch = self.durable.group_epoch + is_moved
            self._outbox.decide(ConsumerMemberSubscribed(self.group_id, member, epoch))

    def replace_static(self, holder: str, member: ConsumerMember) -> None:
        """Give a static member that is back the place that was kept for it."""
        durable = self.durable
        is_moved = wish(durable.members[holder]) != wish(member)
        epoch = durable.group_epoch + is_moved
        self._outbox.decide(StaticConsumerReplaced(self.group_id, holder, member, epoch))
        self._forget(holder)

    def follow(self, topics: Topics) -> None:
        """Check for subscribed topics that came, went or grew: a new target is due then."""
        durable = self.durable
        if topics.by_name is self._compared or durable.group_epoch > durable.assignment_epoch:
            return
        if not topics.has_matched(durable.expressions()):
            return  # the members that sent them will have them matched with their next heartbeat
        self._compared = topics.by_name
        if is_outdated(durable, topics):
            self._outbox.decide(ConsumerGroupEpochMoved(self.group_id, durable.group_epoch + 1))

    def advance(
        self, member_id: str, reported: Partitions | None, topics: Topics, now: float
    ) -> MemberStep:
        """Let a member take its next step, as far as its report and the other members allow."""
        self.topics = topics
        self.follow(topics)
        self._assign(now)
        before = self.durable.standing(member_id)
        after = self._reconcile(member_id, before, reported)
        if after != before:
            self._await_revocation(member_id, now)
        return MemberStep(before, after)

    def _assign(self, now: float) -> None:
        """Make the target that is due, or put it off if the last one was made a moment ago."""
        durable, topics = self.durable, self.topics
        if durable.group_epoch == durable.assignment_epoch:
            self._target_due_at = NEVER
            return
        interval_s = self._rules.group_consumer_assignment_interval_ms / 1000
        is_prompt = len(durable.members) <= PROMPT_MEMBERS_MAX or not durable.assignment_epoch
        if is_prompt or now >= self._assigned_at + interval_s:
            self._outbox.decide(target_of(self.group_id, durable, topics))
            self._compared = topics.by_name
            self._assigned_at, self._target_due_at = now, NEVER
        else:
            self._target_due_at = self._assigned_at + interval_s

    def _reconcile(
        self, member_id: str, before: MemberStanding, reported: Partitions | None
    ) -> MemberStanding:
        durable = self.durable
        after = reconciled(
            before,
            durable.target(member_id),
            reported,
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
            self.remove(member_id)
            return
        standing = self.durable.standing(member_id).left_for_a_while()
        self._outbox.decide(reconciled_fact(self.group_id, member_id, standing))
        self._overdue.pop(member_id, None)

    def remove(self, member_id: str) -> None:
        """Remove a member that left or is fenced."""
        epoch = self.durable.group_epoch + 1
        self._outbox.decide(ConsumerMemberLeft(self.group_id, member_id, epoch, self._now_ms()))
        self._forget(member_id)

    def _forget(self, member_id: str) -> None:
        self._sessions.pop(member_id, None)
        self._overdue.pop(member_id, None)

    def touch(self, member_id: str, now: float) -> None:
        """Restart the session of a member that is alive."""
        classic = self.durable.members[member_id].classic
        session_ms = self._rules.group_consumer_session_timeout_ms
        if classic is not None:
            session_ms = classic.session_timeout_ms
        self._sessions[member_id] = now + session_ms / 1000

    def _await_revocation(self, member_id: str, now: float) -> None:
        durable = self.durable
        if durable.members[member_id].classic is not None:
            return  # its time begins when it hears of the revocation
        self.wait_no_more(member_id)
        if durable.standing(member_id).state is MemberState.UNREVOKED_PARTITIONS:
            self.wait_for(member_id, now)

    def wait_for(self, member_id: str, now: float) -> None:
        """Start a member's rebalance timeout, unless it runs already."""
        timeout_ms = self.durable.members[member_id].rebalance_timeout_ms
        if member_id not in self._overdue:
            self._overdue[member_id] = now + timeout_ms / 1000

    def wait_no_more(self, member_id: str) -> None:
        """End a member's rebalance timeout: it has done what it had to."""
        self._overdue.pop(member_id, None)

    def next_deadline(self) -> float:
        """Return when `tick` may have something to do."""
        return min(self._sessions.earliest, self._overdue.earliest, self._target_due_at)

    def tick(self, now: float) -> None:
        """Fence members that were silent or held partitions too long; make a due target."""
        for deadlines in (self._sessions, self._overdue):
            for member_id in [i for i, at in deadlines.items() if at <= now]:
                self.remove(member_id)
            deadlines.recount()
        if self._target_due_at <= now:
            self._assign(now)
