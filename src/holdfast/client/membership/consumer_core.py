"""A member of a group of the consumer protocol (KIP-848), without its connection and its clock.

Pure. Owns what was sent to the coordinator and what it answered. The member sends a full heartbeat
when it joins, and whenever it is unknown what has arrived; otherwise only what has changed. Must
never report a partition as given up before the `Owner` is done with it.
"""

from typing import NamedTuple
from uuid import UUID

from holdfast.client.membership.answers import Applied, postponed, refused
from holdfast.client.membership.core import Ask, TopicsSeen
from holdfast.client.membership.interface import MemberSettings, MemberState
from holdfast.client.membership.reconciling import HeldPartition, Holding, Reconciling
from holdfast.errors import InvariantViolation
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.protocol.message import Message
from holdfast.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    TopicPartitions,
)

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
MEMBER_IDS_BY_CLIENT_SINCE = 1
HEARTBEAT_MS_MIN = 50
FENCED = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})

Target = frozenset[tuple[UUID, int]]


class _Told(NamedTuple):
    """What the coordinator knows about this member."""

    topics: tuple[str, ...]
    owned: Holding
    is_acknowledgement: bool
    """The report acknowledges an assignment: the member owns exactly what it was assigned."""


class ConsumerCore:
    """The `Core` of the consumer protocol."""

    asks: type[Message] = ConsumerGroupHeartbeatRequest
    is_slow: bool = False
    wants_topics: frozenset[str] = frozenset()

    def __init__(self, settings: MemberSettings, *, member_id: str) -> None:
        self.held = Reconciling(rebalance_timeout_ms=settings.rebalance_timeout_ms)
        self.member_id = member_id
        self.epoch = JOIN_EPOCH
        self._settings = settings
        self._is_named = False
        """True if the coordinator knows the member id."""
        self._was_fenced = False
        self._is_stopping = False
        self._topics: tuple[str, ...] = ()
        self._ids: dict[UUID, str] = {}
        self._target: Target | None = None
        self._must_acknowledge = False
        self._told: _Told | None = None
        self._telling: _Told | None = None
        self._next_at = 0.0

    @property
    def state(self) -> MemberState:
        if self.epoch == JOIN_EPOCH:
            return "fenced" if self._was_fenced else "joining"
        is_settled = self.held.is_settled and not self._must_acknowledge and not self.is_blind
        return "stable" if is_settled else "reconciling"

    @property
    def is_blind(self) -> bool:
        """True if an assigned topic id has no known name, or a joining member has no topics."""
        if self.epoch == JOIN_EPOCH:
            return not self._topics
        return any(topic_id not in self._ids for topic_id, _ in self._target or ())

    def see(self, seen: TopicsSeen, now: float) -> None:
        self._topics = seen.subscribed
        self._ids.update(seen.ids)
        self._aim(now)

    def due_at(self, now: float) -> float | None:
        if self.epoch == JOIN_EPOCH:
            return now if self._topics else None
        if self._told is None or self._told.topics != self._topics:
            return now
        return now if self._must_acknowledge and self.held.is_settled else self._next_at

    def ask(self, api_version: int) -> Ask:
        is_joining, told = self.epoch == JOIN_EPOCH, self._told
        is_acknowledgement = self._must_acknowledge and self.held.is_settled
        self._telling = _Told(self._topics, self.held.owned, is_acknowledgement)
        if is_joining or told is None:
            is_full = owned = topics = True
        else:
            is_full = False
            owned = told.owned != self.held.owned or is_acknowledgement
            topics = told.topics != self._topics
        unnamed = api_version < MEMBER_IDS_BY_CLIENT_SINCE and not self._is_named
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._settings.group_id,
            member_id="" if unnamed else self.member_id,
            member_epoch=self.epoch,
            instance_id=self._settings.instance_id,
            rack_id=(self._settings.rack or None) if is_full else None,
            rebalance_timeout_ms=self._settings.rebalance_timeout_ms if is_full else -1,
            subscribed_topic_names=list(self._topics) if topics else None,
            topic_partitions=_by_topic(self.held.owned) if owned else None,
        )
        return Ask(request, ConsumerGroupHeartbeatResponse)

    def apply(self, answer: Message, now: float) -> Applied:
        if not isinstance(answer, ConsumerGroupHeartbeatResponse):
            raise InvariantViolation(f"group {self._settings.group_id!r}: not an answer: {answer}")
        code = answer.error_code
        if code == ErrorCode.NONE:
            self._confirm(answer, now)
            return Applied()
        self._told = None
        passing = postponed(code)
        if passing is not None:
            return passing
        lost = self._fence()
        if code in FENCED:
            return Applied(lost=lost, is_postponed=not lost)
        return refused(code, lost, answer.error_message)

    def unanswered(self) -> None:
        self._told = None

    def given_up(self, now: float) -> None:
        self.held.given_up()

    def stop(self, now: float) -> None:
        self._is_stopping = True
        self.held.aim(frozenset(), now)

    def farewell(self) -> Ask | None:
        if self._telling is None:
            return None
        is_static = self._settings.instance_id is not None
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._settings.group_id,
            member_id=self.member_id,
            member_epoch=STATIC_LEAVE_EPOCH if is_static else LEAVE_EPOCH,
            instance_id=self._settings.instance_id,
        )
        return Ask(request, ConsumerGroupHeartbeatResponse)

    def _confirm(self, answer: ConsumerGroupHeartbeatResponse, now: float) -> None:
        self.member_id = answer.member_id or self.member_id
        self._is_named = True
        told = self._telling
        if told is not None and told.is_acknowledgement and told.owned == self.held.owned:
            self._must_acknowledge = False
        self._told = told
        self.epoch = answer.member_epoch
        self._was_fenced = False
        self._next_at = now + max(HEARTBEAT_MS_MIN, answer.heartbeat_interval_ms) / 1000
        if answer.assignment is not None:
            self._take(answer.assignment, now)

    def _take(self, assignment: HeartbeatAssignment, now: float) -> None:
        target = frozenset(
            (topic.topic_id, partition)
            for topic in assignment.topic_partitions
            for partition in topic.partitions
        )
        if target != self._target:
            self._target = target
            self._must_acknowledge = True
        self._aim(now)

    def _aim(self, now: float) -> None:
        """Aim for the assigned partitions whose topic names are known; the others follow later."""
        if self._target is None or self._is_stopping:
            return
        known = frozenset(
            HeldPartition(self._ids[topic_id], partition, topic_id)
            for topic_id, partition in self._target
            if topic_id in self._ids
        )
        if known != self.held.target:
            self._must_acknowledge = True
        self.held.aim(known, now)

    def _fence(self) -> frozenset[TopicPartition]:
        self._was_fenced = True
        self.epoch = JOIN_EPOCH
        self._target = None
        self._must_acknowledge = False
        return self.held.lose()


def _by_topic(owned: Holding) -> list[TopicPartitions]:
    found: dict[UUID, list[int]] = {}
    for held in sorted(owned):
        found.setdefault(held.topic_id, []).append(held.partition)
    return [TopicPartitions(topic_id=i, partitions=numbers) for i, numbers in found.items()]
