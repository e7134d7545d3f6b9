"""On whose behalf offsets are committed, and whether that is a member of its group now.

Pure. Which partitions a member may move is in `commits`.
"""

from typing import NamedTuple

from holdfast.groups.classic import ClassicGroup, Phase
from holdfast.groups.consumer_checks import commit_problem
from holdfast.groups.consumer_state import ConsumerState
from holdfast.protocol.api import ErrorCode

MEMBER_EPOCH_SINCE = 9
"""Before, OffsetCommit knew no member epochs, and its clients not what STALE_MEMBER_EPOCH is."""


class Committer(NamedTuple):
    """On whose behalf offsets are committed."""

    member_id: str
    instance_id: str | None
    generation: int
    """Its member epoch, where the group is a consumer group."""
    producer_id: int = -1
    """Within a transaction of this producer, where it is not -1."""
    producer_epoch: int = -1
    version: int = MEMBER_EPOCH_SINCE
    """Of OffsetCommit, where it is not within a transaction."""

    @property
    def is_nameless(self) -> bool:
        """It assigns partitions to itself, or is an administrator."""
        return self.generation < 0 and not self.member_id


def classic_problem(group: ClassicGroup | None, committer: Committer) -> ErrorCode | None:
    """Why a classic group accepts no commit of this one."""
    generation = group.generation if group is not None else None
    if group is None or (generation is None and group.phase is Phase.EMPTY):
        # Nobody was ever a member: somebody who assigns partitions to itself.
        return ErrorCode.ILLEGAL_GENERATION if committer.generation >= 0 else None
    if committer.is_nameless:
        is_open = group.phase is Phase.EMPTY or committer.producer_id >= 0
        return None if is_open else ErrorCode.UNKNOWN_MEMBER_ID
    problem = group.member_problem(committer.member_id, committer.instance_id)
    if problem is not None:
        return problem
    if generation is None or committer.generation != generation.number_of(committer.member_id):
        return ErrorCode.ILLEGAL_GENERATION
    if generation.assignments is None and committer.producer_id < 0:
        # Who owns what is not known. Within a transaction clients know no such answer, their
        # producer would be dead for good; and what nobody owns yet may be committed.
        return ErrorCode.REBALANCE_IN_PROGRESS
    return None


def consumer_problem(group: ConsumerState, committer: Committer) -> ErrorCode | None:
    """Why a consumer group accepts no commit of this one."""
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
