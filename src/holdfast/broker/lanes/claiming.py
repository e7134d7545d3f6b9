"""Claim a lane for this process, and wait until its previous owner can no longer answer.

Owns the contents of this process's claims, and how long a previous owner may still answer. Must
never let a lane be served before that time is over.
"""

import asyncio
import logging
from collections.abc import Awaitable

from holdfast.broker.settings import BrokerSettings
from holdfast.cluster.state import ControlState, ControlStateKind
from holdfast.environment import Environment
from holdfast.errors import ConfigurationError
from holdfast.identifiers import CONTROL_LANE, LaneId
from holdfast.lane.claim import ClaimedLane, claim_lane
from holdfast.lane.entry import Claim
from holdfast.lane.keys import ENTRIES_PREFIX
from holdfast.lane.liveness import Liveness
from holdfast.lane.recovery import recover
from holdfast.lane.state import StateKind, StateT
from holdfast.store.interface import ObjectEntry, Store
from holdfast.store.patience import patiently

OUTPUT_PREFIX = "ledger/"
"""How the keys of a sink's and of a pipeline's ledger begin."""

log = logging.getLogger("holdfast.broker")

CLOCK_RATE_MARGIN = 1.1
"""The wait for a previous owner, as a multiple of the validity of its claim. It is more than 1
because clocks run at different rates."""


class Claimer:
    """Claims lanes for one broker."""

    def __init__(
        self,
        *,
        store: Store,
        environment: Environment,
        settings: BrokerSettings,
        liveness: Liveness,
    ) -> None:
        self._store = store
        self._environment = environment
        self._settings = settings
        self._liveness = liveness

    async def claim(self, lane: LaneId, kind: StateKind[StateT]) -> ClaimedLane[StateT]:
        """Recover a lane and claim it. The caller serves it only after `wait_out`."""
        identity = self._liveness.identity()
        claim = Claim(
            broker_id=self._settings.broker_id,
            address=f"{self._settings.host}:{self._settings.port}",
            claimed_ms=self._environment.now_ms(),
            machine=identity.machine,
            process=identity.process,
            process_start=identity.process_start,
            valid_ms=self._settings.group.claim_valid_ms,
        )
        claimed = await claim_lane(
            self._store, self._environment, lane, kind, claim, self._liveness
        )
        log.info(
            "lane_claimed lane=%d number=%d leader_epoch=%d entries_replayed=%d",
            lane,
            claimed.cursor.claim,
            claimed.cursor.leader_epoch,
            claimed.entries_read,
        )
        return claimed

    async def wait_out(self, lane: ClaimedLane[StateT]) -> None:
        """Wait until the previous owner can no longer answer.

        There is no wait if that owner released the lane or is proved dead.
        """
        until = lane.claimed_at + lane.owed_ms / 1000 * CLOCK_RATE_MARGIN
        wait_s = until - self._environment.monotonic()
        if wait_s > 0:
            log.info("waiting_for_previous_owner lane=%d seconds=%.1f", lane.cursor.lane, wait_s)
            await asyncio.sleep(wait_s)


async def refuse_output(store: Store, environment: Environment) -> None:
    """Raise ConfigurationError if the store holds the output of pipelines, and no broker's data.

    A broker could serve from the same folder, but a user who starts one there has most likely
    mistaken the folder.
    """

    async def has(prefix: str) -> bool:
        def attempt() -> Awaitable[list[ObjectEntry]]:
            return store.list(prefix, limit=1)

        return bool(await patiently(attempt, environment=environment))

    if await has(OUTPUT_PREFIX) and not await has(ENTRIES_PREFIX):
        raise ConfigurationError(
            f"{store.url} holds the output of a sink or a pipeline, and no broker's data: start the"
            " broker on a folder of its own"
        )


async def check_lanes(store: Store, environment: Environment, wanted: int | None) -> None:
    """Raise ConfigurationError if the store has another number of data lanes than `wanted`.

    Call this before the first claim: a broker that cannot serve must not take a lane from one that
    does.
    """
    if wanted is not None:
        recovered = await recover(store, environment, CONTROL_LANE, ControlStateKind())
        refuse_other_lanes(store, wanted, recovered.state)


def refuse_other_lanes(store: Store, wanted: int | None, state: ControlState) -> None:
    if state.cluster_id and wanted is not None and wanted != state.lanes:
        raise ConfigurationError(
            f"the store {store.url} was created with {state.lanes} data lanes, and this number"
            f" never changes: start without --lanes, or with --lanes {state.lanes}"
        )
