"""The cluster as one broker knows it: the broker owns the control lane, or follows it.

Owns which of the two is the case. The known state never goes back to an older one, except for facts
that the owner had decided and could not make durable. Must never let a broker that does not own the
control lane decide anything.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Callable

from holdfast.broker.lanes.claiming import Claimer
from holdfast.broker.settings import BrokerSettings
from holdfast.cluster.facts import ControlFact
from holdfast.cluster.state import ControlState, ControlStateKind
from holdfast.environment import Environment
from holdfast.errors import Fenced, HoldfastError, StoreUnavailable
from holdfast.follow.lane import FollowedLane
from holdfast.identifiers import CONTROL_LANE
from holdfast.lane.effects import Effect, Stored
from holdfast.lane.lane import Lane
from holdfast.store.interface import Store
from holdfast.store.patience import patiently

RELEASE_PATIENCE_S = 10.0
"""How long the release of the control lane may take, given that the store has just answered."""
LINE_PAUSE_S = 10.0
"""The shortest time between two log lines about a control lane that cannot be read."""

log = logging.getLogger("holdfast.broker")


class ControlLane(Lane[ControlState, ControlFact]):
    """The control lane in its owner, the controller. It reports when facts have become durable."""

    when_published: Callable[[], None] | None = None

    def consume(self, effect: Effect[ControlFact]) -> None:
        if isinstance(effect, Stored) and self.when_published is not None:
            self.when_published()


class ClusterView:
    """The cluster as this broker knows it."""

    def __init__(
        self,
        *,
        store: Store,
        environment: Environment,
        settings: BrokerSettings,
        on_lost: Callable[[HoldfastError], None],
    ) -> None:
        self.when_published: Callable[[], None] | None = None
        self._store = store
        self._environment = environment
        self._settings = settings
        self._on_lost = on_lost
        self._followed = FollowedLane(store, environment, CONTROL_LANE, ControlStateKind())
        self._lane: ControlLane | None = None
        self._known = ControlState()
        self._looking = asyncio.Lock()
        self._looks_asked = 0
        self._looks_done = 0
        self._line_due_at = 0.0

    @property
    def state(self) -> ControlState:
        return self._known

    @property
    def lane(self) -> ControlLane | None:
        """Return the control lane, or None if this broker does not own it."""
        return self._lane

    @property
    def number(self) -> int:
        """Return the number of the control lane up to which this broker knows it."""
        if self._lane is not None:
            return self._lane.cursor.next_number
        return self._followed.cursor.next_number

    async def claim(self, claimer: Claimer) -> ControlLane:
        """Claim the control lane. Nothing may be answered as the controller before `wait_out`."""
        claimed = await claimer.claim(CONTROL_LANE, ControlStateKind())
        lane = ControlLane(
            store=self._store,
            environment=self._environment,
            claimed=claimed,
            kind=ControlStateKind(),
            settings=dataclasses.replace(self._settings.group, linger_ms=0),
            snapshot_every=self._settings.snapshot_every,
            on_lost=self._on_lost,
        )
        lane.when_published = self.when_published
        self._lane, self._known = lane, lane.state
        return lane

    async def hand_over(self, lane: ControlLane) -> None:
        """Release the control lane for the next controller. Raises StoreUnavailable."""
        await lane.prepare_to_leave()
        await lane.validate()
        if not await self._close(lane, release=True, patience_s=RELEASE_PATIENCE_S):
            raise StoreUnavailable("lane 0: could not release it: the store did not answer")

    async def give(self, *, release: bool, patience_s: float) -> bool:
        """Stop being the controller. Return False if the store did not answer in time."""
        lane = self._lane
        if lane is None:
            return True
        if release:
            await lane.prepare_to_leave(patience_s / 2)
        return await self._close(lane, release=release, patience_s=patience_s)

    async def _close(self, lane: ControlLane, *, release: bool, patience_s: float) -> bool:
        is_done = await lane.close(release=release, patience_s=patience_s)
        if self._lane is lane:
            self._lane = None
        return is_done

    async def look(self) -> None:
        """Learn everything that was durable when this was called. Raises StoreUnavailable."""
        lane = self._lane
        if lane is not None:
            try:
                await lane.validate()
                return
            except Fenced:
                pass
        self._looks_asked += 1
        asked = self._looks_asked
        async with self._looking:
            if self._looks_done < asked:
                seen = self._looks_asked
                await self._followed.refresh()
                self._looks_done = seen
                if self._lane is lane and lane is not None:
                    self._lane = None  # it was lost, and is followed from now on
                if self._lane is None:
                    self._known = self._followed.state

    async def look_if_possible(self) -> bool:
        """Do the same as `look`. While the store is unreachable, return False and go on with the
        known state."""
        try:
            await self.look()
        except HoldfastError as error:
            # Any request that names an unknown topic comes here: it must not fill the log.
            now = self._environment.monotonic()
            if now >= self._line_due_at:
                self._line_due_at = now + LINE_PAUSE_S
                log.warning("control_lane_not_read error=%s", error)
            return False
        return True

    async def prove(self) -> None:
        """Do the same as `look`, but prove the claim again if this broker is the controller.

        The claim is proved however fresh the last proof is. If the store is unreachable, wait for
        it.
        """
        if self._lane is not None:
            self._lane.doubt()
        await patiently(self.look, environment=self._environment)

    def barrier(self) -> asyncio.Future[None] | None:
        """Return a future that resolves when everything known is durable, or None if it is."""
        return self._lane.barrier() if self._lane is not None else None
