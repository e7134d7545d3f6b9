"""Classic members as clients run them, eager or cooperative, in any kind of group."""

import struct

from tests.support.consumer_groups import Client, ConsumerWorld
from tests.support.groups import SESSION_MS, TOPIC

from holdfast.groups.outbox import Token
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.consumer_protocol import (
    TopicPartition,
    assigned_partitions,
    assignment_bytes,
    read_subscription,
)
from holdfast.protocol.messages.join_group import JoinGroupResponse
from holdfast.protocol.messages.sync_group import SyncGroupResponse

EAGER = "range"
COOPERATIVE = "cooperative-sticky"
ALL = [0, 1, 2, 3]


def subscription(owned: frozenset[int], *, topics: tuple[str, ...] = (TOPIC,)) -> bytes:
    body = struct.pack(">hi", 1, len(topics))
    for topic in topics:
        body += struct.pack(">h", len(topic)) + topic.encode()
    body += struct.pack(">i", -1)
    if not owned:
        return body + struct.pack(">i", 0)
    body += struct.pack(">ih", 1, len(TOPIC)) + TOPIC.encode() + struct.pack(">i", len(owned))
    return body + b"".join(struct.pack(">i", number) for number in sorted(owned))


class Classic:
    """One member: what it owns changes only as a client would change it."""

    def __init__(
        self, world: ConsumerWorld, assignor: str = EAGER, *, instance: str | None = None
    ) -> None:
        self.world = world
        self.assignor = assignor
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.owned: frozenset[int] = frozenset()
        self.to_revoke: frozenset[int] = frozenset()
        """Of what it owns, what it has been told to give up."""
        self.is_stable = False
        self.joining: Token | None = None
        self.syncing: Token | None = None

    @property
    def numbers(self) -> list[int]:
        return sorted(self.owned)

    @property
    def is_cooperative(self) -> bool:
        return self.assignor == COOPERATIVE

    def join(self) -> None:
        """Join, with what a member of its kind says that it owns."""
        if not self.is_cooperative:
            self.owned = frozenset()
        self.is_stable, self.syncing = False, None
        self.joining = self.world.join(
            self.member_id,
            instance=self.instance,
            protocols=[(self.assignor, subscription(self.owned))],
        )

    def lose(self) -> None:
        """It was fenced out: what it owned is not its own any more."""
        self.owned = self.to_revoke = frozenset()
        self.generation, self.member_id = -1, ""

    def step(self) -> ErrorCode:
        """Do the next thing that a client does: read an answer, revoke, or heartbeat."""
        if self.joining is not None:
            return self._read_join(self.joining)
        if self.syncing is not None:
            return self._read_sync(self.syncing)
        if self.to_revoke:
            self.owned, self.to_revoke = self.owned - self.to_revoke, frozenset()
            self.join()
            return ErrorCode.NONE
        if not self.is_stable:
            self.join()
            return ErrorCode.NONE
        error = self.world.heartbeat(self.member_id, self.generation, self.instance)
        self._mend(error)
        return error

    def _mend(self, error: ErrorCode) -> None:
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.lose()
        if error is not ErrorCode.NONE:
            self.join()

    def _read_join(self, token: Token) -> ErrorCode:
        answer = self.world.answers.get(token)
        if answer is None:
            return ErrorCode.NONE
        assert isinstance(answer, JoinGroupResponse)
        self.joining = None
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.join()
        elif error is not ErrorCode.NONE:
            self._mend(error)
        else:
            self.member_id, self.generation = answer.member_id, answer.generation_id
            is_leader = answer.leader == self.member_id
            given = self._assigned(answer) if is_leader else None
            self.syncing = self.world.sync(self.member_id, self.generation, given)
        return error

    def _read_sync(self, token: Token) -> ErrorCode:
        answer = self.world.answers.get(token)
        if answer is None:
            return ErrorCode.NONE
        assert isinstance(answer, SyncGroupResponse)
        self.syncing = None
        error = ErrorCode(answer.error_code)
        if error is not ErrorCode.NONE:
            self._mend(error)
            return error
        assigned = frozenset(p.partition for p in assigned_partitions(answer.assignment) or ())
        self.to_revoke = self.owned - assigned
        self.owned |= assigned
        self.is_stable = True
        return error

    def _assigned(self, answer: JoinGroupResponse) -> dict[str, bytes]:
        """As the leader of a classic group: even, and of a cooperative one nothing that another
        still has."""
        shape = self.world.topics.by_name[TOPIC]
        ids = sorted(member.member_id for member in answer.members)
        owners = {
            part.partition: member.member_id
            for member in answer.members
            for part in (read_subscription(member.metadata) or self._nothing()).owned
        }
        given: dict[str, list[TopicPartition]] = {i: [] for i in ids}
        for number in range(shape.partitions):
            taker = ids[number % len(ids)]
            if owners.get(number, taker) == taker:
                given[taker].append(TopicPartition(TOPIC, number))
        return {i: assignment_bytes(parts, 1) for i, parts in given.items()}

    def _nothing(self) -> None:
        raise AssertionError("a subscription that cannot be read")

    def commit(self, number: int) -> bool:
        """Whether a commit of one partition is accepted."""
        judged = self.world.commit(self.member_id, self.generation, {number: 1})
        return not isinstance(judged, ErrorCode) and judged.errors == [ErrorCode.NONE]

    def leave(self) -> None:
        """Give up everything, and go."""
        self.owned = self.to_revoke = frozenset()
        self.world.leave(self.member_id, self.instance)
        self.lose()


def run(*members: Classic, rounds: int = 8) -> None:
    """All step until nothing moves any more; those who wait for a generation have it formed."""
    for _ in range(rounds):
        for member in members:
            member.step()
            member.step()
        members[0].world.wait(SESSION_MS / 1000 / 3)


def classic_group(world: ConsumerWorld, count: int, assignor: str = EAGER) -> list[Classic]:
    members = [Classic(world, assignor) for _ in range(count)]
    run(*members)
    assert world.phase() == "Stable"
    assert sorted(n for member in members for n in member.owned) == ALL
    return members


def owned(*members: Classic | Client) -> list[int]:
    return sorted(n for member in members for n in member.numbers)


def all_beat(*members: Classic | Client, rounds: int = 8) -> None:
    for _ in range(rounds):
        for member in members:
            if isinstance(member, Client):
                member.beat()
            else:
                member.step()
                member.step()
