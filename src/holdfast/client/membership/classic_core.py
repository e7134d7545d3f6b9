"""A member of a group of the classic protocol, without its connection and its clock.

Pure. Owns the order of JoinGroup, SyncGroup and Heartbeat, and the leader's part. A rebalance does
not touch the partitions that the member keeps. Must never join while its `Owner` gives partitions
up: the owned partitions in a JoinGroup must be true when it is sent.
"""

from holdfast.client.membership.answers import Applied, postponed, refused
from holdfast.client.membership.core import Ask, TopicsSeen
from holdfast.client.membership.interface import MemberSettings, MemberState
from holdfast.client.membership.reconciling import HeldPartition, Reconciling
from holdfast.client.membership.sticky import COOPERATIVE_STICKY, StickyMember, assign, read_claim
from holdfast.errors import InvariantViolation
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.consumer_protocol import (
    NO_GENERATION,
    PROTOCOL_TYPE,
    VERSION_MAX,
    Subscription,
    TopicPartition,
    assigned_partitions,
    assignment_bytes,
    subscription_bytes,
)
from holdfast.protocol.message import Message
from holdfast.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from holdfast.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from holdfast.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from holdfast.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

NO_MEMBER_ID = ""
ASSIGNMENT_VERSION = 1


class ClassicCore:
    """The `Core` of the classic protocol."""

    def __init__(self, settings: MemberSettings) -> None:
        self.held = Reconciling(rebalance_timeout_ms=settings.rebalance_timeout_ms)
        self.member_id = NO_MEMBER_ID
        self.epoch = NO_GENERATION
        self._settings = settings
        self._was_fenced = False
        self._is_stopping = False
        self._must_join = True
        self._topics: tuple[str, ...] = ()
        self._joined_for: tuple[str, ...] = ()
        self._joined: JoinGroupResponse | None = None
        """The response to a JoinGroup whose assignment has not come yet."""
        self._led: dict[str, StickyMember] | None = None
        """The claims of all members, if this member is the leader."""
        self._counts: dict[str, int] | None = None
        """Partition counts of all members' topics when this member, as leader, assigned them."""
        self._next_at = 0.0

    @property
    def state(self) -> MemberState:
        if self.epoch == NO_GENERATION:
            return "fenced" if self._was_fenced else "joining"
        is_moving = self._must_join or self._joined is not None
        return "reconciling" if is_moving or not self.held.is_settled else "stable"

    @property
    def wants_topics(self) -> frozenset[str]:
        led = self._led or {}
        return frozenset(topic for claim in led.values() for topic in claim.topics)

    @property
    def is_blind(self) -> bool:
        """True if a leader has not seen yet what there is to assign, or nothing is subscribed."""
        if self._joined is not None:
            return self._led is not None and self._counts is None
        return not self._topics

    @property
    def asks(self) -> type[Message]:
        if self._joined is not None:
            return SyncGroupRequest
        may_join = self._must_join and self.held.is_settled and not self._is_stopping
        is_of_use = self._topics or self.epoch != NO_GENERATION
        return JoinGroupRequest if may_join and is_of_use else HeartbeatRequest

    @property
    def is_slow(self) -> bool:
        return self.asks is not HeartbeatRequest

    def see(self, seen: TopicsSeen, now: float) -> None:
        if seen.subscribed != self._topics:
            self._topics = seen.subscribed
            self._must_join = True
            if not self._is_stopping and self._joined is None:
                left = frozenset(held for held in self.held.target if held.topic in self._topics)
                self.held.aim(left, now)
        wanted = self.wants_topics
        if self._led is None or not seen.covers(wanted):
            return
        counts = {topic: seen.counts[topic] for topic in wanted if topic in seen.counts}
        if self._joined is not None:
            self._counts = counts
        elif counts != self._counts:
            self._must_join = True

    def due_at(self, now: float) -> float | None:
        kind = self.asks
        if kind is SyncGroupRequest:
            return None if self.is_blind else now
        if kind is JoinGroupRequest:
            return now
        return None if self.epoch == NO_GENERATION else self._next_at

    def ask(self, api_version: int) -> Ask:
        kind = self.asks
        if kind is SyncGroupRequest:
            return Ask(self._sync(), SyncGroupResponse)
        if kind is JoinGroupRequest:
            return Ask(self._join(), JoinGroupResponse)
        request = HeartbeatRequest(
            group_id=self._settings.group_id,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self._settings.instance_id,
        )
        return Ask(request, HeartbeatResponse)

    def apply(self, answer: Message, now: float) -> Applied:
        match answer:
            case JoinGroupResponse():
                return self._join_answered(answer)
            case SyncGroupResponse():
                return self._sync_answered(answer, now)
            case HeartbeatResponse():
                self._next_at = now + self._settings.heartbeat_interval_ms / 1000
                if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                    self._must_join = True
                    return Applied()
                return self._judge(answer.error_code)
            case _:
                group = self._settings.group_id
                raise InvariantViolation(f"group {group!r}: not an answer: {answer}")

    def unanswered(self) -> None:
        if self._joined is not None:
            self._joined = None
            self._must_join = True

    def given_up(self, now: float) -> None:
        self.held.given_up()
        self._must_join = True

    def stop(self, now: float) -> None:
        self._is_stopping = True
        self.held.aim(frozenset(), now)

    def farewell(self) -> Ask | None:
        if self._settings.instance_id is not None or not self.member_id:
            return None
        request = LeaveGroupRequest(
            group_id=self._settings.group_id,
            member_id=self.member_id,
            members=[MemberIdentity(member_id=self.member_id, reason="the member was stopped")],
        )
        return Ask(request, LeaveGroupResponse)

    def _join(self) -> JoinGroupRequest:
        self._joined_for = self._topics
        subscription = Subscription(
            VERSION_MAX,
            list(self._topics),
            sorted(self.held.names),
            self._settings.rack or None,
            self.epoch,
        )
        protocol = JoinGroupRequestProtocol(
            name=COOPERATIVE_STICKY, metadata=subscription_bytes(subscription)
        )
        return JoinGroupRequest(
            group_id=self._settings.group_id,
            session_timeout_ms=self._settings.session_timeout_ms,
            rebalance_timeout_ms=self._settings.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self._settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[protocol],
        )

    def _join_answered(self, answer: JoinGroupResponse) -> Applied:
        code = answer.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return Applied()
        if code != ErrorCode.NONE:
            return self._judge(code)
        if answer.protocol_name != COOPERATIVE_STICKY:
            what = f"the group's assignor is {answer.protocol_name!r}"
            return refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, self._reset(), what)
        self.member_id = answer.member_id
        self.epoch = answer.generation_id
        self._was_fenced = False
        self._joined = answer
        self._counts = self._led = None
        if answer.leader == answer.member_id and answer.members:
            claims = {row.member_id: read_claim(bytes(row.metadata)) for row in answer.members}
            self._led = {i: claim or StickyMember(frozenset()) for i, claim in claims.items()}
        return Applied()

    def _sync(self) -> SyncGroupRequest:
        assignments: list[SyncGroupRequestAssignment] = []
        is_mine = self._joined is not None and not self._joined.skip_assignment
        if self._led is not None and is_mine:
            assignments = [
                SyncGroupRequestAssignment(
                    member_id=member_id,
                    assignment=assignment_bytes(partitions, ASSIGNMENT_VERSION),
                )
                for member_id, partitions in assign(self._led, self._counts or {}).items()
            ]
        return SyncGroupRequest(
            group_id=self._settings.group_id,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self._settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=COOPERATIVE_STICKY,
            assignments=assignments,
        )

    def _sync_answered(self, answer: SyncGroupResponse, now: float) -> Applied:
        self._joined = None
        code = answer.error_code
        if code != ErrorCode.NONE:
            self._must_join = True
            is_again = code == ErrorCode.REBALANCE_IN_PROGRESS
            return Applied() if is_again else self._judge(code)
        partitions = assigned_partitions(bytes(answer.assignment))
        if partitions is None:
            what = "the assignment cannot be read"
            return refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, self._reset(), what)
        self._must_join = self._joined_for != self._topics
        self._next_at = now + self._settings.heartbeat_interval_ms / 1000
        if not self._is_stopping:
            wanted = frozenset(HeldPartition(*p) for p in partitions if p.topic in self._topics)
            self.held.aim(wanted, now)
        return Applied()

    def _judge(self, code: int) -> Applied:
        """Return the consequence of an error code that a normal rebalance does not explain."""
        if code == ErrorCode.NONE:
            return Applied()
        passing = postponed(code)
        if passing is not None:
            return passing
        match code:
            case ErrorCode.REBALANCE_IN_PROGRESS:
                return Applied(is_postponed=True)
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = NO_MEMBER_ID
                lost = self._reset()
                return Applied(lost=lost, is_postponed=not lost)
            case ErrorCode.ILLEGAL_GENERATION:
                lost = self._reset()
                return Applied(lost=lost, is_postponed=not lost)
            case _:
                return refused(code, self._reset())

    def _reset(self) -> frozenset[TopicPartition]:
        self._was_fenced = True
        self.epoch = NO_GENERATION
        self._must_join = True
        self._joined = self._led = self._counts = None
        return self.held.lose()
