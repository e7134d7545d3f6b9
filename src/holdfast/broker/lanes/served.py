"""The data lanes that this broker serves, with the coordinators in them.

Owns how a lane comes: claim it, know the topics at least as well as the previous owner did, wait
until that owner can no longer answer, serve. Owns how a lane goes: stop serving it, put everything
decided, release it. Must never serve a lane whose newest claim is not its own, nor one before the
wait for its previous owner is over.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager

from holdfast.broker.groups.lane_groups import LaneGroups
from holdfast.broker.lanes.claiming import Claimer
from holdfast.broker.transactions.lane_transactions import LaneTransactions
from holdfast.errors import Fenced, HoldfastError, StoreUnavailable
from holdfast.identifiers import LaneId
from holdfast.lane.claim import ClaimedLane
from holdfast.lane.lane import CLOSE_PATIENCE_S
from holdfast.log.data_lane import DataLane
from holdfast.log.state import LogState, LogStateKind

log = logging.getLogger("holdfast.broker")

RELEASE_PATIENCE_S = 10.0
"""How long the release at a hand-over may take, given that the store has just answered."""
PREPARE_SHARE = 0.4
"""The part of a stopping broker's patience in which a lane is still served while its snapshot is
put. The rest is for the release."""

MakeLane = Callable[[ClaimedLane[LogState], Callable[[HoldfastError], None]], DataLane]


class ServedLanes:
    """The data lanes that this broker leads."""

    def __init__(
        self,
        *,
        claimer: Claimer,
        know_topics: Callable[[], Awaitable[None]],
        make_lane: MakeLane,
        take_in: Callable[[DataLane], Awaitable[None]],
        make_groups: Callable[[DataLane], LaneGroups],
        make_transactions: Callable[[DataLane], LaneTransactions],
        on_lost: Callable[[LaneId, HoldfastError], None],
    ) -> None:
        self.lanes: dict[LaneId, DataLane] = {}
        self.groups: dict[LaneId, LaneGroups] = {}
        self.transactions: dict[LaneId, LaneTransactions] = {}
        self.when_served: list[Callable[[DataLane], None]] = []
        self.when_left: list[Callable[[DataLane], None]] = []
        self._claimer = claimer
        self._know_topics = know_topics
        self.make_lane = make_lane
        """The function that opens a claimed lane."""
        self._take_in = take_in
        """The function that takes in records which the previous owner acknowledged from its
        disk."""
        self._make_groups = make_groups
        self._make_transactions = make_transactions
        self._on_lost = on_lost
        self._claimed: dict[LaneId, DataLane] = {}
        """All claimed lanes, also those that are not served yet."""
        self.coming: dict[LaneId, asyncio.Future[None]] = {}
        """Lanes that will be served in a moment, if all goes well. Requests may wait for them."""
        self.expected: dict[LaneId, asyncio.Future[None]] = {}
        """Lanes that this broker asks their owners for. Clients that they send here may wait."""
        self.going: dict[LaneId, asyncio.Future[None]] = {}
        """Lanes that are being released. Requests may wait until the next owner can be named."""

    @contextmanager
    def expecting(self, lane: LaneId) -> Generator[None]:
        """Let requests wait while this broker asks for a lane and takes it.

        The lane's owner names this broker to clients at the moment in which it answers.
        """
        arrival = self.expected[lane] = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            del self.expected[lane]
            arrival.set_result(None)

    async def take(self, lanes: Sequence[LaneId]) -> None:
        """Claim lanes and serve them. Raises if one could not be had, or was lost again."""
        for lane in lanes:
            self.coming[lane] = asyncio.get_running_loop().create_future()
        try:
            await self._take(lanes)
        finally:
            for lane in lanes:
                self.coming[lane].set_result(None)
            await asyncio.sleep(0)  # a request about to wait takes its place before later ones
            for lane in lanes:
                del self.coming[lane]

    async def _take(self, lanes: Sequence[LaneId]) -> None:
        kind = LogStateKind()
        claimed = await asyncio.gather(*(self._claimer.claim(lane, kind) for lane in lanes))
        taken: list[DataLane] = []
        for lane in claimed:
            taken.append(self._own(lane))
        # Otherwise a topic may have been deleted, and the previous owner may have dropped its
        # partitions from the lane. This broker would take it for an empty topic, and give out its
        # offsets again.
        await self._know_topics()
        await asyncio.gather(*(self._claimer.wait_out(lane) for lane in claimed))
        await asyncio.gather(*(self._take_in(lane) for lane in taken))
        for lane in taken:
            if lane.failure is not None:
                raise lane.failure
        self._serve(taken)

    def _own(self, claimed: ClaimedLane[LogState]) -> DataLane:
        lane_id = claimed.cursor.lane

        def lost(error: HoldfastError) -> None:
            if self._claimed.get(lane_id) is lane:  # otherwise it was claimed again
                self._on_lost(lane_id, error)

        lane = self._claimed[lane_id] = self.make_lane(claimed, lost)
        return lane

    def _serve(self, taken: Sequence[DataLane]) -> None:
        for lane in taken:
            self.lanes[lane.lane] = lane
        for lane in taken:
            self.groups[lane.lane] = self._make_groups(lane)
        for lane in taken:
            self.transactions[lane.lane] = self._make_transactions(lane)
        for lane in taken:
            for told in self.when_served:
                told(lane)

    async def hand_over(self, lane_id: LaneId) -> None:
        """Release a lane that this broker serves, so that the next owner can take it at once.

        Raises StoreUnavailable if the store does not answer. The lane is then still served here,
        unless the store became unreachable during the release: then no other broker could take it
        either.
        """
        lane = self.lanes[lane_id]
        await lane.prepare_to_leave()
        await lane.validate()
        if self.lanes.get(lane_id) is not lane:
            raise Fenced(f"lane {lane_id}: this broker no longer serves it")
        if not await self._release(lane, RELEASE_PATIENCE_S):
            raise StoreUnavailable(
                f"lane {lane_id}: could not release it: the store did not answer"
            )

    async def give(self, lane_id: LaneId, *, release: bool, patience_s: float) -> bool:
        """Stop serving a lane, even if the store does not answer, and leave it to the next owner.

        Everything decided is put first. Return False if the store did not answer in time. Nothing
        is released before the wait for the previous owner is over: that owner may still answer.
        """
        lane = self._claimed.get(lane_id)
        if lane is None:
            return True
        if not release or lane_id not in self.lanes:
            return await self._close(lane, release=False, patience_s=patience_s)
        until = asyncio.get_running_loop().time() + patience_s
        await lane.prepare_to_leave(patience_s * PREPARE_SHARE)
        return await self._release(lane, until - asyncio.get_running_loop().time())

    async def _release(self, lane: DataLane, patience_s: float) -> bool:
        if self.lanes.get(lane.lane) is not lane:  # it was lost, or is being released already
            return await lane.close(release=True, patience_s=patience_s)
        left = self.going[lane.lane] = asyncio.get_running_loop().create_future()
        try:
            return await self._close(lane, release=True, patience_s=patience_s)
        finally:
            # The lane may have been claimed again, and be on its way out a second time.
            if self.going.get(lane.lane) is left:
                del self.going[lane.lane]
            left.set_result(None)

    async def _close(self, lane: DataLane, *, release: bool, patience_s: float) -> bool:
        self._leave(lane.lane)
        is_done = await lane.close(release=release, patience_s=patience_s)
        if self._claimed.get(lane.lane) is lane:
            del self._claimed[lane.lane]
        return is_done

    async def give_all(self, *, release: bool, patience_s: float) -> list[LaneId]:
        """Stop serving all lanes. Return those for which the store did not answer in time."""
        lanes = list(self._claimed)
        given = await asyncio.gather(
            *(self.give(lane, release=release, patience_s=patience_s) for lane in lanes)
        )
        return [lane for lane, is_given in zip(lanes, given, strict=True) if not is_given]

    def _leave(self, lane_id: LaneId) -> None:
        lane = self.lanes.pop(lane_id, None)
        groups = self.groups.pop(lane_id, None)
        self.transactions.pop(lane_id, None)
        if groups is not None:
            groups.end()
        if lane is not None:
            lane.wake_all()
            for told in self.when_left:
                told(lane)

    async def forget(self, lane_id: LaneId) -> None:
        """Stop serving a lane that another broker has taken."""
        await self.give(lane_id, release=False, patience_s=CLOSE_PATIENCE_S)
