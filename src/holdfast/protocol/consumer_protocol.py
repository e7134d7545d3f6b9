"""The subscriptions and assignments of classic consumer groups, as bytes.

Pure. Owns the layout of the bytes that JoinGroup and SyncGroup carry for protocol type "consumer".
A broker reads them to know which member owns a partition. It writes assignments when it assigns
partitions itself, because a group changes between the classic and the consumer protocol. A member
writes and reads both.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

PROTOCOL_TYPE = "consumer"
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


VERSION_MAX = 3
_OWNED_SINCE = 1
_GENERATION_SINCE = 2
_RACK_SINCE = 3
_NULL = -1
NO_GENERATION = -1


class TopicPartition(NamedTuple):
    """A partition as clients name it."""

    topic: str
    partition: int


class Subscription(NamedTuple):
    """The topics that a member wants, and the partitions that it owns while it joins."""

    version: int
    topics: list[str]
    owned: list[TopicPartition]
    """The partitions of a cooperative member. An eager member gives up all before it joins."""
    rack_id: str | None
    generation: int = NO_GENERATION
    """The generation in which the member owned these partitions."""
    user_data: bytes = b""
    """Bytes that only the member's assignor understands."""


class Assignment(NamedTuple):
    """The partitions that a member was given, and whether its assignor added user data."""

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
        """Read an array's length; raise ValueError if the bytes cannot hold it."""
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

    def octets(self) -> bytes:
        """Read bytes that only members understand; null is read as empty."""
        length = self.int32()
        if length > len(self._data) - self._at:
            raise ValueError(f"{length} bytes do not fit")
        start = self._at
        self._at += max(0, length)
        return self._data[start : self._at]

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
    """Return the partitions in a SyncGroup assignment, or None if it cannot be read.

    An empty assignment has no partitions.
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
    """Read a whole SyncGroup assignment; return None if it cannot be read."""
    if not assignment:
        return Assignment([], has_user_data=False)
    reader = _Reader(assignment)
    try:
        if reader.int16() < 0:
            return None
        partitions = reader.topic_partitions()
        return Assignment(partitions, has_user_data=len(reader.octets()) > 0)
    except (ValueError, struct.error):
        return None


def read_subscription(subscription: bytes) -> Subscription | None:
    """Read a whole JoinGroup subscription; return None if it cannot be read."""
    reader = _Reader(subscription)
    try:
        version = reader.int16()
        if version < 0:
            return None
        topics = [reader.string() for _ in range(reader.count(2))]
        user_data = reader.octets()
        owned = reader.topic_partitions() if version >= _OWNED_SINCE else []
        generation = reader.int32() if version >= _GENERATION_SINCE else NO_GENERATION
        rack_id = reader.nullable_string() if version >= _RACK_SINCE else None
        return Subscription(
            min(version, VERSION_MAX), topics, owned, rack_id, generation, user_data
        )
    except (ValueError, struct.error):
        return None


def subscribed_topics(subscription: bytes) -> list[str] | None:
    """Return the topics that a member of a classic group wants, or None if they cannot be read."""
    reader = _Reader(subscription)
    try:
        if reader.int16() < 0:
            return None
        return [reader.string() for _ in range(reader.count(2))]
    except (ValueError, struct.error):
        return None


def sticky_generation(user_data: bytes) -> int:
    """Return the generation that sticky assignors keep in user data, for subscriptions without one.

    The user data of Java's cooperative assignor is the generation alone. Other assignors put the
    partitions that they owned before it. NO_GENERATION if it cannot be read.
    """
    reader = _Reader(user_data)
    try:
        if len(user_data) > _INT32.size:
            reader.topic_partitions()
        return reader.int32()
    except (ValueError, struct.error):
        return NO_GENERATION


def subscription_bytes(subscription: Subscription) -> bytes:
    """Encode a subscription as a member sends it with JoinGroup."""
    version = subscription.version
    parts = [_INT16.pack(version), _INT32.pack(len(subscription.topics))]
    parts += [_string(topic) for topic in subscription.topics]
    if subscription.user_data:
        parts += [_INT32.pack(len(subscription.user_data)), subscription.user_data]
    else:
        parts.append(_INT32.pack(_NULL))
    if version >= _OWNED_SINCE:
        parts.append(_topic_partitions(subscription.owned))
    if version >= _GENERATION_SINCE:
        parts.append(_INT32.pack(subscription.generation))
    if version >= _RACK_SINCE:
        rack_id = subscription.rack_id
        parts.append(_INT16.pack(_NULL) if rack_id is None else _string(rack_id))
    return b"".join(parts)


def assignment_bytes(partitions: Iterable[TopicPartition], version: int) -> bytes:
    """Encode an assignment as the leader of a group would send it; all versions look alike."""
    return b"".join(
        [
            _INT16.pack(min(version, VERSION_MAX)),
            _topic_partitions(partitions),
            _INT32.pack(_NULL),
        ]
    )


def _topic_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    parts = [_INT32.pack(len(topics))]
    for topic, numbers in topics.items():
        parts += [_string(topic), _INT32.pack(len(numbers))]
        parts += [_INT32.pack(number) for number in numbers]
    return b"".join(parts)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return _INT16.pack(len(encoded)) + encoded
