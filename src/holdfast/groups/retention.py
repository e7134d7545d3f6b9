"""Expiry of committed offsets, by Kafka's rules.

Pure. An offset never expires while a member of its group wants its topic. Without members, the time
counts from when the last one left; without a group protocol, from the commit itself.
"""

from collections.abc import Collection
from typing import NamedTuple

from holdfast.groups.facts import CommittedOffset
from holdfast.groups.state import Group
from holdfast.identifiers import PartitionId


class HeldOffsets(NamedTuple):
    """What the members of a group keep from expiry."""

    partitions: Collection[PartitionId]
    """The committed partitions that must not expire."""
    has_members: bool


def expired_offsets(
    group: Group, held: HeldOffsets, *, retention_ms: int, now_ms: int
) -> list[PartitionId]:
    """Return the partitions whose committed offsets have expired."""
    in_transactions = {p for pending in group.pending.values() for p in pending.offsets}
    return [
        partition
        for partition, committed in group.offsets.items()
        if partition not in held.partitions
        and partition not in in_transactions
        and _is_too_old(group, committed, held, retention_ms=retention_ms, now_ms=now_ms)
    ]


def _empty_since_ms(group: Group) -> int:
    formed_ms = group.generation.formed_ms if group.generation is not None else 0
    left_ms = group.consumers.left_ms if group.consumers is not None else 0
    return max(formed_ms, left_ms)


def _is_too_old(
    group: Group, committed: CommittedOffset, held: HeldOffsets, *, retention_ms: int, now_ms: int
) -> bool:
    if committed.expires_ms >= 0:
        return now_ms >= committed.expires_ms
    since_ms = committed.committed_ms
    if not held.has_members:
        since_ms = max(since_ms, _empty_since_ms(group))
    return now_ms - since_ms >= retention_ms
