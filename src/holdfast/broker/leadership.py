"""May this broker speak for a partition now? The claim-validity rule, as handlers use it."""

from holdfast.errors import Fenced, HoldfastError
from holdfast.log.data_lane import DataLane
from holdfast.protocol.api import ErrorCode

NO_LEADER_EPOCH = -1


async def prove_claim(
    lane: DataLane, current_leader_epoch: int = NO_LEADER_EPOCH
) -> ErrorCode | None:
    """Make sure that the lane's claim is the newest; the error to answer where it is not.

    A client that knows a newer leader epoch has heard of a newer claim: look at once.
    """
    appender = lane.appender
    if current_leader_epoch > lane.leader_epoch:
        appender.doubt()
    if appender.is_valid():
        return None
    try:
        await appender.validate()
    except Fenced:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    except HoldfastError:
        return ErrorCode.KAFKA_STORAGE_ERROR
    return None


def epoch_problem(lane: DataLane, current_leader_epoch: int) -> ErrorCode | None:
    """Whether the client's idea of the leader epoch is too old, or newer than the truth."""
    if current_leader_epoch == NO_LEADER_EPOCH:
        return None
    if current_leader_epoch < lane.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if current_leader_epoch > lane.leader_epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return None
