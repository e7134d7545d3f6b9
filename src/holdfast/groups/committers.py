"""The sender of an offset commit, and whether it is a member of its group now.

Pure. Must never judge single partitions: `commits` says which ones a member may commit.
"""

from typing import NamedTuple

from holdfast.groups.classic.classic_group import ClassicGroup, GroupPhase
from holdfast.groups.consumer.checks import commit_problem
from holdfast.groups.consumer.state import ConsumerState
from holdfast.protocol.api import ErrorCode

MEMBER_EPOCH_SINCE = 9
"""The first OffsetCommit with member epochs; older clients do not know STALE_MEMBER_EPOCH."""


class Committer(NamedTuple):
    """The sender of an offset commit."""

    member_id: str
    instance_id: str | None
    generation: int
    """The generation; in a consumer group, the member epoch."""
    producer_id: int = -1
    """The producer whose transaction the commit belongs to; -1 if there is none."""
    producer_epoch: int = -1
    version: int = MEMBER_EPOCH_SINCE
    """The version of OffsetCommit, if the commit is not part of a transaction."""

    @property
    def is_nameless(self) -> bool:
        """True for a consumer that assigns partitions to itself, and for an administrator."""
        return self.generation < 0 and not self.member_id


def classic_problem(group: ClassicGroup | None, committer: Committer) -> ErrorCode | None:
    """Return why a classic group refuses commits of this sender; None if it accepts them."""
    generation = group.generation if group is not None else None
    if group is None or (generation is None and group.phase is GroupPhase.EMPTY):
        # The group never had members: the consumer assigns partitions to itself.
        return ErrorCode.ILLEGAL_GENERATION if committer.generation >= 0 else None
    if committer.is_nameless:
        is_open = group.phase is GroupPhase.EMPTY or committer.producer_id >= 0
        return None if is_open else ErrorCode.UNKNOWN_MEMBER_ID
    problem = group.member_problem(committer.member_id, committer.instance_id)
    if problem is not None:
        return problem
    if generation is None or committer.generation != generation.number_of(committer.member_id):
        return ErrorCode.ILLEGAL_GENERATION
    if generation.assignments is None and committer.producer_id < 0:
        # Partitions have no known owner yet. Transactional commits are let through: their clients
        # do not know this error, so the producer would be dead for good; and partitions that have
        # no owner yet may be committed.
        return ErrorCode.REBALANCE_IN_PROGRESS
    return None


def consumer_problem(group: ConsumerState, committer: Committer) -> ErrorCode | None:
    """Return why a consumer group refuses commits of this sender; None if it accepts them."""
    if committer.is_nameless and committer.producer_id >= 0:
        return None
    instance_id = committer.instance_id
    holder = group.holder(instance_id) if instance_id is not None else None
    if holder is not None and holder != committer.member_id:
        return ErrorCode.FENCED_INSTANCE_ID
    member = group.members.get(committer.member_id)
    speaks_new = member is not None and member.classic is None
    is_old = committer.producer_id < 0 and committer.version < MEMBER_EPOCH_SINCE
    if speaks_new and is_old:
        return ErrorCode.UNSUPPORTED_VERSION
    return commit_problem(group, committer.member_id, committer.generation)
