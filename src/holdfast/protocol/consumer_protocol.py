"""What members of a classic group of consumers tell each other: subscription and assignment.

Pure. Owns the layout of the bytes that JoinGroup and SyncGroup carry for protocol type
"consumer". Of a classic group a broker reads them to know who owns a partition; where it assigns
itself, because the group is on its way to another protocol, it writes assignments too.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

PROTOCOL_TYPE = "consumer"
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


VERSION_MAX = 3
_OWNED_SINCE = 1
_RACK_SINCE = 3
_NULL = -1


class TopicPartition(NamedTuple):
    """A partition as clients name it."""

    topic: str
    partition: int


class Subscription(NamedTuple):
    """What a member wants, and what it has while it joins."""

    version: int
    topics: list[str]
    owned: list[TopicPartition]
    """Of a cooperative member; an eager one has given up everything before it joins."""
    rack_id: str | None


class Assignment(NamedTuple):
    """What a member was given, and whether its assignor has told it more than that."""

    partitions: list[TopicPartition]
    has_user_data: bool


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def int16(self) -> int:
        (value,) = _INT16.unpack_from(self._data, self._at)
        self._at += 2
        return value

    def int32(self) -> int:
        (value,) = _INT32.unpack_from(self._data, self._at)
        self._at += 4
        return value

    def count(self, size_min: int) -> int:
        """The length of an array; one that the bytes cannot hold is no length."""
        count = self.int32()
        if not 0 <= count <= (len(self._data) - self._at) // size_min:
            raise ValueError(f"an array of {count} does not fit")
        return count

    def string(self) -> str:
        length = self.int16()
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise ValueError(f"a string of {length} bytes does not fit")
        text = self._data[self._at : end].decode()
        self._at = end
        return text

    def skip_bytes(self) -> int:
        """Pass over what only members understand; its length, -1 where there is none."""
        length = self.int32()
        if length > len(self._data) - self._at:
            raise ValueError(f"{length} bytes do not fit")
        self._at += max(0, length)
        return length

    def nullable_string(self) -> str | None:
        (length,) = _INT16.unpack_from(self._data, self._at)
        if length == _NULL:
            self._at += 2
            return None
        return self.string()

    def topic_partitions(self) -> list[TopicPartition]:
        found: list[TopicPartition] = []
        for _ in range(self.count(6)):
            topic = self.string()
            found.extend(TopicPartition(topic, self.int32()) for _ in range(self.count(4)))
        return found


def assigned_partitions(assignment: bytes) -> list[TopicPartition] | None:
    """Whom a SyncGroup assignment makes the owner of what; None where it is not understood.

    An assignment of no bytes is one of no partitions.
    """
    if not assignment:
        return []
    reader = _Reader(assignment)
    try:
        if reader.int16() < 0:
            return None
        return reader.topic_partitions()
    except (ValueError, struct.error):
        return None


def read_assignment(assignment: bytes) -> Assignment | None:
    """All of a SyncGroup assignment; None where it is not understood."""
    if not assignment:
        return Assignment([], has_user_data=False)
    reader = _Reader(assignment)
    try:
        if reader.int16() < 0:
            return None
        partitions = reader.topic_partitions()
        return Assignment(partitions, has_user_data=reader.skip_bytes() > 0)
    except (ValueError, struct.error):
        return None


def read_subscription(subscription: bytes) -> Subscription | None:
    """All of a JoinGroup subscription; None where it is not understood."""
    reader = _Reader(subscription)
    try:
        version = reader.int16()
        if version < 0:
            return None
        topics = [reader.string() for _ in range(reader.count(2))]
        reader.skip_bytes()
        owned = reader.topic_partitions() if version >= _OWNED_SINCE else []
        rack_id = None
        if version >= _RACK_SINCE:
            reader.int32()  # the generation in which it had what it owns
            rack_id = reader.nullable_string()
        return Subscription(min(version, VERSION_MAX), topics, owned, rack_id)
    except (ValueError, struct.error):
        return None


def subscribed_topics(subscription: bytes) -> list[str] | None:
    """The topics that a member of a classic group wants; None where it is not understood."""
    reader = _Reader(subscription)
    try:
        if reader.int16() < 0:
            return None
        return [reader.string() for _ in range(reader.count(2))]
    except (ValueError, struct.error):
        return None


def assignment_bytes(partitions: Iterable[TopicPartition], version: int) -> bytes:
    """An assignment as the leader of a group would send it; all versions look alike."""
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    parts = [_INT16.pack(min(version, VERSION_MAX)), _INT32.pack(len(topics))]
    for topic, numbers in topics.items():
        name = topic.encode()
        parts += [_INT16.pack(len(name)), name, _INT32.pack(len(numbers))]
        parts += [_INT32.pack(number) for number in numbers]
    return b"".join([*parts, _INT32.pack(_NULL)])
