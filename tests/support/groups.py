"""A coordinator without a broker: time is set by hand, facts are durable at once."""

import itertools
import struct
from collections.abc import Sequence
from uuid import UUID

import msgspec

from holdfast.expressions import Expression, expression_problem
from holdfast.groups.caller import Caller
from holdfast.groups.commits import CommitDecision, RequestedCommit
from holdfast.groups.committers import Committer
from holdfast.groups.coordinator import GroupCoordinator
from holdfast.groups.facts import GroupFact
from holdfast.groups.outbox import Token
from holdfast.groups.rules import GroupRules
from holdfast.groups.state import GroupsState, StoredGroups, restored_groups, stored_groups
from holdfast.groups.topics import Topics, TopicShape
from holdfast.identifiers import PartitionId
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.protocol.message import Message
from holdfast.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from holdfast.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

GROUP = "payments"
TOPIC = "orders"
TOPIC_ID = UUID(int=7)
SESSION_MS = 10_000
REBALANCE_MS = 60_000
INITIAL_DELAY_S = 3.0


def subscription(*topics: str) -> bytes:
    body = struct.pack(">hi", 1, len(topics))
    for topic in topics:
        body += struct.pack(">h", len(topic)) + topic.encode()
    return body + struct.pack(">ii", -1, 0)


def assignment(*partitions: int, topic: str = TOPIC) -> bytes:
    if not partitions:
        return struct.pack(">hii", 1, 0, -1)
    body = struct.pack(">hi", 1, 1) + struct.pack(">h", len(topic)) + topic.encode()
    body += struct.pack(">i", len(partitions))
    body += b"".join(struct.pack(">i", partition) for partition in partitions)
    return body + struct.pack(">i", -1)


def topic_id(name: str) -> UUID:
    return TOPIC_ID if name == TOPIC else UUID(bytes=name.encode().ljust(16, b".")[:16])


class World:
    """One coordinator, its clock, and the answers that have left."""

    def __init__(self, rules: GroupRules | None = None) -> None:
        self.rules = rules or GroupRules()
        self.now = 100.0
        self.topics = Topics({})
        self.have({TOPIC: 4})
        self.state = GroupsState()
        self.facts: list[GroupFact] = []
        self.answers: dict[Token, Message] = {}
        self._tokens = itertools.count()
        self._ids = itertools.count(1)
        self.coordinator = self._made()

    def _made(self) -> GroupCoordinator:
        return GroupCoordinator(
            self.state,
            self,
            self.rules,
            now=self.now,
            now_ms=lambda: int(self.now * 1000),
            topics=lambda: self.topics,
            new_member_suffix=lambda: f"id{next(self._ids)}",
        )

    def have(self, topics: dict[str, int]) -> None:
        """These topics are there now."""
        self.topics = Topics(
            {name: TopicShape(topic_id(name), count) for name, count in topics.items()}
        )

    def matched_topics(self, expression: str | None = None) -> Topics:
        """The topics with what the group's expressions match, as the broker hands them in."""
        wanted = self.coordinator.expressions(GROUP)
        if expression and expression_problem(expression) is None:
            wanted.add(expression)
        before = self.coordinator.known_topics(GROUP)
        return Topics(
            self.topics.by_name,
            {each: self._matching(each, before) for each in wanted},
        )

    def _matching(self, text: str, before: Topics) -> frozenset[str]:
        slices = Expression(text).slices(self.topics.unmatched_names(text, before))
        return self.topics.matched(text, before, [name for found in slices for name in found])

    def decide(self, fact: GroupFact) -> None:
        self.facts.append(fact)
        self.state.apply(fact)
        self.state.publish(fact)

    def answer(self, token: Token, response: Message) -> None:
        assert token not in self.answers, "answered twice"
        self.answers[token] = response

    def crash(self) -> None:
        """A new coordinator that has nothing but the facts."""
        self.state = GroupsState()
        data = msgspec.msgpack.encode(self.facts)
        for fact in msgspec.msgpack.decode(data, type=list[GroupFact]):
            self.state.apply(fact)
            self.state.publish(fact)
        self.coordinator = self._made()

    def crash_onto_a_snapshot(self) -> None:
        data = msgspec.msgpack.encode(stored_groups(self.state))
        self.state = restored_groups(msgspec.msgpack.decode(data, type=StoredGroups))
        self.coordinator = self._made()

    def wait(self, seconds: float) -> None:
        """Let time pass, deadline by deadline."""
        until = self.now + seconds
        while (at := self.coordinator.next_deadline()) <= until:
            self.now = max(self.now, at)
            self.coordinator.tick(self.now)
        self.now = until

    def keep_alive(self, member_id: str, seconds: float) -> None:
        """Let a long time pass at once for a member that never falls silent."""
        self.now += seconds
        self.heartbeat(member_id, self.generation())

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: Sequence[tuple[str, bytes]] = (("range", subscription(TOPIC)),),
        protocol_type: str = "consumer",
        version: int = 9,
        session_ms: int = SESSION_MS,
    ) -> Token:
        token = Token(next(self._tokens))
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols
            ],
        )
        caller = Caller("client", "/127.0.0.1", version)
        self.coordinator.join(request, caller, token, self.matched_topics(), self.now)
        return token

    def joined(self, token: Token) -> JoinGroupResponse:
        response = self.answers[token]
        assert isinstance(response, JoinGroupResponse)
        return response

    def new_member(self, **options: object) -> str:
        """The id that a new dynamic member is given; it has not joined with it yet."""
        answer = self.joined(self.join(**options))  # pyright: ignore[reportArgumentType]
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return answer.member_id

    def sync(self, member_id: str, generation: int, given: dict[str, bytes] | None = None) -> Token:
        token = Token(next(self._tokens))
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=generation,
            member_id=member_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=i, assignment=data)
                for i, data in (given or {}).items()
            ],
        )
        self.coordinator.sync(request, token, self.now)
        return token

    def synced(self, token: Token) -> SyncGroupResponse:
        response = self.answers[token]
        assert isinstance(response, SyncGroupResponse)
        return response

    def heartbeat(self, member_id: str, generation: int, instance: str | None = None) -> ErrorCode:
        return self.coordinator.heartbeat(GROUP, member_id, instance, generation, self.now)

    def leave(self, member_id: str, instance: str | None = None) -> ErrorCode:
        return self.coordinator.leave(GROUP, [(member_id, instance)], self.now)[0]

    def commit(
        self,
        member_id: str,
        generation: int,
        offsets: dict[int, int],
        *,
        producer: tuple[int, int] = (-1, -1),
        version: int = 9,
    ) -> ErrorCode | CommitDecision:
        asked = [
            RequestedCommit(TopicPartition(TOPIC, p), PartitionId(TOPIC_ID, p), offset, -1, None)
            for p, offset in offsets.items()
        ]
        committer = Committer(member_id, None, generation, *producer, version=version)
        return self.coordinator.commit(GROUP, committer, asked, self.now)

    def committed(self, partition: int) -> int | None:
        found = self.state.groups[GROUP].offsets.get(PartitionId(TOPIC_ID, partition))
        return found.offset if found is not None else None

    def phase(self) -> str:
        group = self.coordinator.classic(GROUP)
        return group.phase.value if group is not None else "Dead"

    def stable(self, assigned: Sequence[bytes], *, members: Sequence[str] = ()) -> list[str]:
        """A stable group with these assignments; its members, the leader first."""
        ids = [*members, *(self.new_member() for _ in range(len(assigned) - len(members)))]
        tokens = [self.join(member_id) for member_id in ids]
        self.wait(INITIAL_DELAY_S)
        generation = self.joined(tokens[0]).generation_id
        leader = self.joined(tokens[0]).leader
        given = dict(zip(ids, assigned, strict=True))
        for member_id in ids:
            self.sync(member_id, generation, given if member_id == leader else None)
        assert self.phase() == "Stable"
        return ids

    def generation(self) -> int:
        generation = self.state.groups[GROUP].generation
        assert generation is not None
        return generation.number
