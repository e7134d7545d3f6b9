"""The subscriptions and assignments of simulated members of classic groups, as bytes.

Pure. Owns the client's half of the layout: the broker reads only what it needs of it.
"""

import struct
from collections.abc import Iterable

from holdfast.verify.vocabulary import Partition

_VERSION = 1
_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">i")
_NO_DATA = _LENGTH.pack(-1)


def subscription(topics: Iterable[str], owned: Iterable[Partition]) -> bytes:
    """Encode the topics that a member wants and the partitions that it owns."""
    names = list(topics)
    body = _HEAD.pack(_VERSION, len(names)) + b"".join(map(_text, names))
    return body + _NO_DATA + _partitions(owned)


def owned_in(data: bytes) -> list[Partition]:
    """Return the partitions that a subscription names as owned."""
    position = _HEAD.size
    for _ in range(_HEAD.unpack_from(data)[1]):
        position += 2 + int.from_bytes(data[position : position + 2], "big")
    position += _LENGTH.size
    (topics,) = _LENGTH.unpack_from(data, position)
    position += _LENGTH.size
    found: list[Partition] = []
    for _ in range(topics):
        length = int.from_bytes(data[position : position + 2], "big")
        name = data[position + 2 : position + 2 + length].decode()
        position += 2 + length
        (count,) = _LENGTH.unpack_from(data, position)
        numbers = struct.unpack_from(f">{count}i", data, position + _LENGTH.size)
        position += _LENGTH.size * (1 + count)
        found += [f"{name}/{number}" for number in numbers]
    return found


def assignment(partitions: Iterable[Partition]) -> bytes:
    """Encode the partitions that the leader gives to a member."""
    return struct.pack(">h", _VERSION) + _partitions(partitions) + _NO_DATA


def _partitions(partitions: Iterable[Partition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for partition in sorted(partitions):
        topic, _, number = partition.rpartition("/")
        topics.setdefault(topic, []).append(int(number))
    return _LENGTH.pack(len(topics)) + b"".join(
        _text(name) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
        for name, numbers in topics.items()
    )


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
