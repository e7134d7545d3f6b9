"""The rule of claim validity, as handlers use it: whether this broker may answer for a lane now."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from holdfast.errors import Fenced, HoldfastError
from holdfast.identifiers import LaneId, PartitionId
from holdfast.log.data_lane import DataLane
from holdfast.protocol.api import ErrorCode

NO_LEADER_EPOCH = -1
PROOF_WAIT_S = 3.0
"""How long a request waits for a proof. Without this limit, a store that stalls would hold the
request until the store's own timeout."""


class HasLeaderEpoch(Protocol):
    """A lane, owned or followed."""

    @property
    def leader_epoch(self) -> int: ...


async def prove_claim(
    lane: DataLane, current_leader_epoch: int = NO_LEADER_EPOCH
) -> ErrorCode | None:
    """Make sure that the lane's claim is the newest. Return the error to answer if it is not.

    A client that knows a newer leader epoch has heard of a newer claim, so an earlier proof does
    not count.
    """
    if current_leader_epoch > lane.leader_epoch:
        lane.doubt()
    if lane.is_valid():
        return None
    try:
        async with asyncio.timeout(PROOF_WAIT_S):
            await lane.validate()
    except Fenced:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    except (HoldfastError, TimeoutError):
        return ErrorCode.KAFKA_STORAGE_ERROR
    return None


class Proofs:
    """The proofs of claims for one request.

    An unreachable store costs the request one wait for all its lanes at once, not one for each of
    its partitions.
    """

    def __init__(self, lanes: Callable[[], Iterable[DataLane]]) -> None:
        self._lanes = lanes
        self._failed: dict[LaneId, ErrorCode] | None = None

    async def prove(
        self, lane: DataLane, current_leader_epoch: int = NO_LEADER_EPOCH
    ) -> ErrorCode | None:
        """Prove a claim as `prove_claim` does, but only once for this request if that fails."""
        if not lane.is_valid():
            if self._failed is None:
                self._failed = await self._prove_all()
            failed = self._failed.get(lane.lane)
            if failed is not None and not lane.is_valid():
                return failed
        return await prove_claim(lane, current_leader_epoch)

    async def _prove_all(self) -> dict[LaneId, ErrorCode]:
        stale = {lane.lane: lane for lane in self._lanes() if not lane.is_valid()}
        errors = await asyncio.gather(*(prove_claim(lane) for lane in stale.values()))
        return {lane: error for lane, error in zip(stale, errors, strict=True) if error is not None}


SAID_BY_ANYBODY = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Codes that a coordinator may answer even if a newer one exists: clients ask again."""


def needs_proof(lane: DataLane, error: int, *, gives: bool = False) -> bool:
    """True if a response may be wrong until the claim is proved.

    A newer owner may know the member, or the producer, that the response refuses. Or it may have
    given to another member the partitions that the response gives.
    """
    return (gives or error not in SAID_BY_ANYBODY) and not lane.is_valid()


async def coordinator_error(lane: DataLane, error: ErrorCode, *, gives: bool = False) -> ErrorCode:
    """Return `error`, or another one if it needs a proved claim and the claim cannot be proved."""
    if not needs_proof(lane, error, gives=gives):
        return error
    return await coordinator_problem(lane) or error


async def coordinator_problem(lane: DataLane) -> ErrorCode | None:
    """Return the error if this broker may not answer as the coordinator of a lane, otherwise None.

    Either a newer coordinator exists, or the store did not answer.
    """
    unproven = await prove_claim(lane)
    if unproven is None:
        return None
    is_fenced = unproven is ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NOT_COORDINATOR if is_fenced else ErrorCode.COORDINATOR_NOT_AVAILABLE


def offline_problem(lane: DataLane, partition: PartitionId) -> ErrorCode | None:
    """Return an error if the end of a partition is on a disk that is not here, otherwise None.

    The error is not LEADER_NOT_AVAILABLE, which Metadata and Produce answer: Java's consumers stop
    if a fetch gets it. After NOT_LEADER_OR_FOLLOWER they ask for the leader again.
    """
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if lane.is_offline(partition) else None


def epoch_problem(lane: HasLeaderEpoch, current_leader_epoch: int) -> ErrorCode | None:
    """Return an error if the client's leader epoch is older or newer than the lane's."""
    if current_leader_epoch == NO_LEADER_EPOCH:
        return None
    if current_leader_epoch < lane.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if current_leader_epoch > lane.leader_epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return None
