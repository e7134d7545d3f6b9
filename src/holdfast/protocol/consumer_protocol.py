"""What members of a classic group of consumers tell each other: subscription and assignment.

Pure. Owns the layout of the bytes that JoinGroup and SyncGroup carry for protocol type
"consumer". A broker needs no more of them than the assignment: it says who owns a partition.
"""

import struct
from typing import NamedTuple

PROTOCOL_TYPE = "consumer"
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class TopicPartition(NamedTuple):
    """A partition as clients name it."""

    topic: str
    partition: int


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


def subscribed_topics(subscription: bytes) -> list[str] | None:
    """The topics that a member of a classic group wants; None where it is not understood."""
    reader = _Reader(subscription)
    try:
        if reader.int16() < 0:
            return None
        return [reader.string() for _ in range(reader.count(2))]
    except (ValueError, struct.error):
        return None
