"""Decide on offset commits: which member may commit which partition.

Pure. Owns the rule for late acks: a member may commit a partition that it owns or that has no
owner, never one that is assigned to another member now. So a consumer that commits a partition
after losing it, in whatever generation, cannot make the new owner skip records. A commit that names
no member, as transactional producers sent before KIP-447, is fenced by its transactional id alone.
"""

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.groups.facts import CommittedOffset
from holdfast.groups.rules import GroupRules
from holdfast.groups.state import Group
from holdfast.identifiers import PartitionId
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.consumer_protocol import TopicPartition

NOT_OWNED = ErrorCode.STALE_MEMBER_EPOCH
"""The answer to a late ack: clients report it and continue. ILLEGAL_GENERATION, which Kafka has for
whole requests, makes librdkafka give up all its partitions."""


class RequestedCommit(NamedTuple):
    """One partition of a commit request."""

    name: TopicPartition
    partition: PartitionId | None
    """None if there is no such partition."""
    offset: int
    leader_epoch: int
    metadata: str | None


class CommitDecision(NamedTuple):
    """The offsets that may be committed, and the answer for each partition of the request."""

    accepted: list[CommittedOffset]
    errors: list[ErrorCode]
    refused_as_not_owned: int


def judge_commit(
    group: Group | None,
    member_id: str | None,
    asked: Sequence[RequestedCommit],
    rules: GroupRules,
    *,
    member_epoch: int,
    now_ms: int,
    retention_ms: int = -1,
) -> CommitDecision:
    """Judge a commit, partition by partition. The caller has checked that the member belongs to the
    group, or that none need be named."""
    accepted: list[CommittedOffset] = []
    errors: list[ErrorCode] = []
    not_owned = 0
    expires_ms = now_ms + retention_ms if retention_ms >= 0 else -1
    for item in asked:
        metadata = item.metadata or ""
        if item.partition is None:
            errors.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif len(metadata) > rules.offset_metadata_max_bytes:
            errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
        elif _is_of_another(group, member_id, item.name, item.partition):
            errors.append(NOT_OWNED)
            not_owned += 1
        elif _is_too_old(group, member_id, item.partition, member_epoch):
            errors.append(ErrorCode.STALE_MEMBER_EPOCH)
        else:
            errors.append(ErrorCode.NONE)
            accepted.append(
                CommittedOffset(
                    item.partition, item.offset, item.leader_epoch, metadata, now_ms, expires_ms
                )
            )
    return CommitDecision(accepted, errors, not_owned)


def _is_of_another(
    group: Group | None, member_id: str | None, name: TopicPartition, partition: PartitionId
) -> bool:
    if group is None or member_id is None:
        return False
    owner = group.owner(name, partition)
    return owner is not None and owner != member_id


def _is_too_old(
    group: Group | None, member_id: str | None, partition: PartitionId, member_epoch: int
) -> bool:
    """True if a member of a consumer group commits in an epoch before it owned the partition."""
    members = group.consumers if group is not None else None
    if members is None or member_id is None or member_id not in members.members:
        return False
    is_current = members.standing(member_id).member_epoch == member_epoch
    return not is_current and not members.has_owned_since(member_id, partition, member_epoch)
