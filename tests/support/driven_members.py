"""Cores of members against the broker's own coordinator, with no socket and no clock."""

import itertools

from tests.support.consumer_groups import ConsumerWorld
from tests.support.groups import GROUP, REBALANCE_MS, SESSION_MS, TOPIC

from holdfast.client.membership.answers import Applied
from holdfast.client.membership.classic_core import ClassicCore
from holdfast.client.membership.consumer_core import ConsumerCore
from holdfast.client.membership.core import Core, TopicsSeen
from holdfast.client.membership.interface import MemberSettings
from holdfast.groups.caller import Caller
from holdfast.groups.outbox import Token
from holdfast.protocol.message import Message
from holdfast.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from holdfast.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from holdfast.protocol.messages.join_group import JoinGroupRequest
from holdfast.protocol.messages.leave_group import LeaveGroupRequest
from holdfast.protocol.messages.sync_group import SyncGroupRequest

TOKENS = itertools.count(1_000_000)
NAMES = itertools.count()


def settings(protocol: str = "consumer", **given: object) -> MemberSettings:
    described: dict[str, object] = {
        "group_id": GROUP,
        "topics": (TOPIC,),
        "protocol": protocol,
        "session_timeout_ms": SESSION_MS,
        "heartbeat_interval_ms": SESSION_MS // 10,
        "rebalance_timeout_ms": REBALANCE_MS,
        **given,
    }
    return MemberSettings(**described)  # pyright: ignore[reportArgumentType]


class Driven:
    """One member, that moves when it is told to, and an owner that holds what it is given."""

    def __init__(self, world: ConsumerWorld, protocol: str, **given: object) -> None:
        self.world = world
        told = settings(protocol, **given)
        self.core: Core = (
            ConsumerCore(told, member_id=f"member-{next(NAMES)}")
            if protocol == "consumer"
            else ClassicCore(told)
        )
        self.topics = told.topics
        self.held: frozenset[tuple[str, int]] = frozenset()
        """What the owner holds: released only by what it is told."""
        self.is_revoking = False
        self.give_up_until = 0.0
        self.lost: list[int] = []
        self.refused: Applied | None = None
        self.waiting: Token | None = None

    @property
    def numbers(self) -> list[int]:
        return sorted(number for topic, number in self.held if topic == TOPIC)

    def look(self) -> None:
        shapes = self.world.topics.by_name
        looked_for = frozenset(self.topics) | self.core.wants_topics
        found = {name: shapes[name] for name in looked_for if name in shapes}
        seen = TopicsSeen(
            tuple(sorted(self.topics)),
            {name: shape.partitions for name, shape in found.items()},
            {shape.topic_id: name for name, shape in found.items()},
            looked_for,
        )
        self.core.see(seen, self.world.now)

    def tell(self) -> None:
        """The owner is told what is next; giving up ends when `finish` is called."""
        while not self.is_revoking and (step := self.core.held.step(self.world.now)):
            if step.assign:
                names = {held.name for held in step.assign}
                assert not names & self.held
                self.held |= names
            if step.revoke:
                assert {held.name for held in step.revoke} <= self.held
                assert 0 <= step.seconds <= REBALANCE_MS / 1000
                self.is_revoking = True
                self.give_up_until = self.world.now + step.seconds

    def finish(self) -> None:
        """The owner is done with giving up."""
        if self.is_revoking:
            self.is_revoking = False
            self.held -= {held.name for held in self.core.held.revoking}
            self.core.given_up(self.world.now)
            self.tell()

    def ask(self) -> Message | None:
        """What the core sends now, if it sends anything."""
        if self.core.is_blind:
            self.look()
        self.tell()
        if self.waiting is not None or self.core.due_at(self.world.now) is None:
            return None
        kind = self.core.asks
        made = self.core.ask(kind.VERSIONS[-1])
        assert type(made.request) is kind
        return made.request

    def send(self, request: Message) -> None:
        """The coordinator gets it; the answer waits until it is read."""
        world, token = self.world, Token(next(TOKENS))
        caller = Caller("client", "/127.0.0.1", type(request).VERSIONS[-1])
        self.waiting = token
        match request:
            case ConsumerGroupHeartbeatRequest():
                world.coordinator.consumer_heartbeat(
                    request, caller, token, world.matched_topics(), world.now
                )
            case JoinGroupRequest():
                world.coordinator.join(request, caller, token, world.matched_topics(), world.now)
            case SyncGroupRequest():
                world.coordinator.sync(request, token, world.now)
            case HeartbeatRequest():
                code = world.heartbeat(
                    request.member_id, request.generation_id, request.group_instance_id
                )
                world.answers[token] = HeartbeatResponse(error_code=code)
            case LeaveGroupRequest():
                world.leave(request.member_id)
                self.waiting = None
            case _:
                raise AssertionError(request)

    def read(self) -> None:
        """Take in the answer, if it has come."""
        answer = self.world.answers.get(self.waiting) if self.waiting is not None else None
        if answer is None:
            return
        self.waiting = None
        applied = self.core.apply(answer, self.world.now)
        if applied.lost:
            self.lost += sorted(where.partition for where in applied.lost)
            assert applied.lost == self.held
            self.held, self.is_revoking = frozenset(), False
        if applied.refused is not None:
            self.refused = applied
        self.tell()

    def step(self) -> None:
        """Ask what is due, and take in what has been answered."""
        self.read()
        request = self.ask()
        if request is not None:
            self.send(request)
            self.read()

    def lose_request(self) -> None:
        if self.waiting is None and self.ask() is not None:
            self.core.unanswered()

    def lose_answer(self) -> None:
        """What is on its way, or sent now, arrives; its answer does not."""
        self.read()
        request = self.ask()
        if request is not None:
            self.send(request)
        self.break_connection()

    def break_connection(self) -> None:
        if self.waiting is not None:
            self.waiting = None
            self.core.unanswered()

    def leave(self) -> None:
        self.core.stop(self.world.now)
        self.tell()
        while self.is_revoking:
            self.finish()
        assert not self.held
        goodbye = self.core.farewell()
        if goodbye is not None:
            self.waiting = None
            self.send(goodbye.request)
