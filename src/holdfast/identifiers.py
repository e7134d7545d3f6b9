"""Types for the identifiers of topics, partitions, lanes, brokers and writers.

Pure. Owns what a legal topic name is. Must never import anything of Holdfast.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple, NewType
from uuid import UUID

BrokerId = NewType("BrokerId", int)
LaneId = NewType("LaneId", int)
LaneNumber = NewType("LaneNumber", int)
"""The position of an object in its lane: 0, 1, 2, ... without gaps."""
LeaderEpoch = NewType("LeaderEpoch", int)
ProducerId = NewType("ProducerId", int)
WriterId = NewType("WriterId", bytes)
"""Sixteen random bytes that one attempt to own a lane writes into each of its objects."""

CONTROL_LANE = LaneId(0)
WRITER_ID_BYTES = 16
TOPIC_NAME_LENGTH_MAX = 249
LEGAL_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class PartitionId(NamedTuple):
    """One partition of one incarnation of a topic: a recreated topic has another id."""

    topic_id: UUID
    partition: int

    def __str__(self) -> str:
        return f"{self.topic_id}-{self.partition}"


def in_order(partitions: Iterable[PartitionId]) -> list[PartitionId]:
    """Sort by topic id and number. Quicker than sorted(), which compares UUIDs in Python."""
    return sorted(partitions, key=lambda each: (each.topic_id.int, each.partition))


def topic_name_problem(name: str) -> str | None:
    """Return what is wrong with a topic name, or None if it is legal."""
    if not name:
        return "the topic name is empty"
    if name in (".", ".."):
        return f"the topic name {name!r} would be a path"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return (
            f"the topic name has {len(name)} characters; at most {TOPIC_NAME_LENGTH_MAX} are legal"
        )
    if not LEGAL_TOPIC_NAME.fullmatch(name):
        return (
            f"the topic name {name[:80]!r} has a character other than a-z, A-Z, 0-9, '.', '_', '-'"
        )
    return None
