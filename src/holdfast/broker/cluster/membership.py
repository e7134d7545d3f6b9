"""One broker among others: it knows which are alive, and asks for the lanes that it should own.

Owns liveness, and the decision which lanes to try to own. Nothing here is needed for safety:
put-if-absent decides which broker owns a lane, whichever tries. Must never claim a lane of a broker
that answers, unless that broker has released it.
"""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import AbstractContextManager
from typing import Any, Protocol

from holdfast.broker.cluster.neighbours import NEVER, Neighbours, OwnBroker
from holdfast.broker.cluster.peer_network import PeerNetwork
from holdfast.broker.cluster.presence import Presence
from holdfast.client.address import Address
from holdfast.client.refusals import BrokerUnavailable
from holdfast.cluster.peers import Leader, PeerReport
from holdfast.cluster.placement import desired_owners
from holdfast.environment import Environment
from holdfast.errors import Fenced, HoldfastError, StopError
from holdfast.identifiers import CONTROL_LANE, BrokerId, LaneId
from holdfast.protocol.messages.lane_hand_over import LaneHandOverRequest, LaneHandOverResponse

log = logging.getLogger("holdfast.cluster")

PING_INTERVAL_S = 0.5
HAND_OVER_TIMEOUT_S = 30.0
LOOK_INTERVAL_S = 5.0
"""How often the control lane is read if no ping says that it has grown."""
STORE_AWAY_S = 15.0
"""A broker that has not reached the store for this long should not have lanes."""
FENCED_PAUSE_S = 5.0
"""How long a lane that another broker took from this one is left alone: the new owner may not have
been heard yet. The pause doubles each time."""
FENCED_PAUSE_S_MAX = 60.0


class ClusterMember(OwnBroker, Protocol):
    """The broker, as its membership uses it."""

    @property
    def is_controller(self) -> bool: ...

    def register(self, report: PeerReport) -> None:
        """Record where a broker is reached. Only the controller does this."""
        ...

    async def look(self) -> None:
        """Learn everything that was durable in the control lane when this was called."""
        ...

    def expecting(self, lane: LaneId) -> AbstractContextManager[None]:
        """Let clients' requests wait while this broker asks for a lane and takes it."""
        ...

    async def take(self, lane: LaneId) -> None:
        """Claim a lane and serve it."""
        ...

    async def doubt(self, lane: LaneId) -> None:
        """Check the claim of a lane of ours, because another broker says that it has the lane."""
        ...


class Membership:
    """One broker's membership in the cluster."""

    def __init__(
        self,
        member: ClusterMember,
        network: PeerNetwork,
        environment: Environment,
        presence: Presence,
        *,
        rejoin_wait_s: float,
    ) -> None:
        self.neighbours = Neighbours(member, network, environment, presence, when_heard=self._heard)
        self.peers = self.neighbours.peers
        self._rejoin_wait_s = rejoin_wait_s
        self._was_here_before = False
        self._member = member
        self._network = network
        self._environment = environment
        self._wake = asyncio.Event()
        self._started_at = environment.monotonic()
        self._looked_at = environment.monotonic()
        self._is_looking = False
        self._taking: dict[LaneId, asyncio.Task[None]] = {}
        self._left_alone: dict[LaneId, tuple[float, float]] = {}
        """By lane, until when it is left alone, and for how long."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: asyncio.Task[None] | None = None
        self._stopped_by: StopError | None = None

    def now(self) -> float:
        return self._environment.monotonic()

    def news(self) -> None:
        """Begin the next round at once: something changed that the others should hear."""
        self._wake.set()

    def _heard(self, report: PeerReport) -> None:
        """Act on another broker's report."""
        me = self._member.report()
        if self._member.is_controller:
            self._member.register(report)
        for lane, leader_epoch in report.lanes.items():
            if me.lanes.get(lane, leader_epoch) < leader_epoch:
                self._spawn(self._member.doubt(lane))
        if report.control_number > me.control_number:
            self._spawn(self._look())

    def leader_of(self, lane: LaneId) -> Leader | None:
        """Return the leader of a lane, as far as this broker knows."""
        self.neighbours.note_own()
        return self.peers.leader_of(lane, self.now())

    def promised_leader_of(self, lane: LaneId) -> Leader | None:
        """Return the broker that will serve a lane in a moment, and lets requests for it wait."""
        self.neighbours.note_own()
        return self.peers.promised_leader_of(lane, self.now())

    def alive(self) -> dict[BrokerId, PeerReport]:
        """Return the reports of the brokers that are alive. This broker is among them."""
        self.neighbours.note_own()
        return self.peers.alive(self.now())

    async def join(self) -> None:
        """Register with the cluster, or become its controller. Then take the lanes that are due."""
        try:
            await self._join()
        except BaseException:  # it does not take part, and must not look alive
            await self.neighbours.stop()
            raise
        self._running = asyncio.get_running_loop().create_task(self._run())

    async def _join(self) -> None:
        self._was_here_before = self._member.report().broker_id in self._member.state.brokers
        while True:
            await self._look()
            await self.neighbours.ping_all()
            self.neighbours.look_into_the_store()
            self.neighbours.note_own()
            me = self._member.report()
            if self.neighbours.is_settled():
                known = self._member.state.brokers.get(me.broker_id)
                if known is not None and known.incarnation == me.incarnation:
                    break
                if self.peers.leader_of(CONTROL_LANE, self.now()) is None:
                    self._act()
                    await self._wait_for_takes()
            await self._pause(PING_INTERVAL_S / 5)  # no pause if a lane was just taken
        await self.neighbours.ping_all()
        self._act()
        await self._wait_for_takes()

    async def _wait_for_takes(self) -> None:
        """Wait until the lanes are taken. Raise the error if one of them needs a person.

        This is raised only at the start. Later, the lanes that are intact stay in service.
        """
        if self._taking:
            await asyncio.wait(self._taking.values())
        if self._stopped_by is not None:
            raise self._stopped_by

    async def stop(self) -> None:
        tasks = [*self._tasks, *self._taking.values()]
        if self._running is not None:
            tasks.append(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.neighbours.stop()

    async def _run(self) -> None:
        self.neighbours.begin_rounds()
        while True:
            # Begin a round as soon as a silent broker counts as gone: clients wait for its lanes
            # from then on.
            await self._pause(min(PING_INTERVAL_S, self.peers.next_silence_s(self.now())))
            self.neighbours.notice_stall()
            try:
                await self.neighbours.ping_all()
                self.neighbours.notice_stall()  # it may have been paused during this round
                if self.now() - self._looked_at > LOOK_INTERVAL_S and not self._is_looking:
                    self._spawn(self._look())  # an unreachable store must not silence us
                self._act()
            except Exception:
                log.exception("membership_failed")

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    @property
    def is_store_away(self) -> bool:
        """True if this broker has not reached the store for a while."""
        return self.now() - self._looked_at > STORE_AWAY_S

    async def _look(self) -> None:
        self._is_looking = True
        try:
            await self._member.look()
            self._looked_at = self.now()
            self._notice_replacement()
        except StopError:
            raise
        except HoldfastError as error:
            log.warning("control_lane_not_read error=%s", error)
        finally:
            self._is_looking = False

    def _notice_replacement(self) -> None:
        me = self._member.report()
        known = self._member.state.brokers.get(me.broker_id)
        if known is None:
            return
        is_another = (known.host, known.port) != (me.host, me.port)
        if known.incarnation > me.incarnation or (
            known.incarnation == me.incarnation and is_another
        ):
            self._member.replaced(known.host, known.port)

    def _act(self) -> None:
        """Ask for the lanes that this broker should own and does not."""
        if not self.neighbours.is_settled():
            return
        self.neighbours.note_own()
        me = self._member.report()
        alive = self.peers.alive(self.now())
        if self.neighbours.is_cut_off(alive):
            return
        candidates = [
            each
            for each, report in alive.items()
            if not report.is_draining and not report.is_store_away
        ]
        owners = self.peers.owners(self.now())
        placed = {LaneId(lane): BrokerId(wish) for lane, wish in self._member.state.placed.items()}
        awaited = self.peers.awaited(self.now())
        placed |= awaited
        wanted = desired_owners([CONTROL_LANE], candidates, owners=owners, preferred=placed)
        if self._member.state.cluster_id:
            lanes = [LaneId(lane) for lane in range(1, self._member.state.lanes + 1)]
            wanted |= desired_owners(lanes, candidates, owners=owners, preferred=placed)
        unreachable = self.neighbours.reachability.unreachable()
        for lane, owner in wanted.items():
            is_coming = lane in owners and self.peers.leader_of(lane, self.now()) is None
            if is_coming and owners[lane] != me.broker_id:
                continue  # the broker that is taking it may be asked for it later
            if owner != me.broker_id or lane in me.lanes or not self._may_try(lane):
                continue
            if owners.get(lane) in unreachable:
                continue  # its owner serves it, and cannot be asked for it
            if lane in awaited or not self._leaves_it_for_now(lane):
                self._taking[lane] = asyncio.get_running_loop().create_task(self._take(lane))

    def _leaves_it_for_now(self, lane: LaneId) -> bool:
        """True if a lane stays, for now, with the broker that serves it and wants to keep it.

        This broker was gone, and clients that noticed do not try to reach it again at once. Or it
        was paused, and may be paused again.
        """
        came_at = max(
            self.neighbours.awake_since, self._started_at if self._was_here_before else NEVER
        )
        if self.now() - came_at >= self._rejoin_wait_s:
            return False
        leader = self.peers.leader_of(lane, self.now())
        report = self.peers.report_of(leader.broker_id) if leader is not None else None
        return report is not None and not report.is_draining and not report.is_store_away

    def _may_try(self, lane: LaneId) -> bool:
        return lane not in self._taking and self._left_alone.get(lane, (0.0, 0.0))[0] <= self.now()

    def taken_away(self, lane: LaneId) -> None:
        """Leave a lane alone for a while, because another broker has claimed it."""
        self.neighbours.sign_of_life()
        pause = min(
            2 * self._left_alone.get(lane, (0.0, FENCED_PAUSE_S / 2))[1], FENCED_PAUSE_S_MAX
        )
        self._left_alone[lane] = (self.now() + pause, pause)

    async def _take(self, lane: LaneId) -> None:
        try:
            with self._member.expecting(lane):
                if await self._is_free(lane):
                    await self._member.take(lane)
                    self.news()
        except Fenced as error:
            log.info("lane_not_taken lane=%d error=%s", lane, error)
            self.taken_away(lane)
        except StopError as error:
            log.error("lane_not_taken lane=%d error=%s", lane, error)
            self._stopped_by = error
            self.taken_away(lane)
        except HoldfastError as error:
            log.warning("lane_not_taken lane=%d error=%s", lane, error)
        finally:
            del self._taking[lane]

    async def _is_free(self, lane: LaneId) -> bool:
        """True if a lane may be claimed. If another broker serves it, ask for its release first."""
        leader = self.peers.leader_of(lane, self.now())
        report = self.peers.report_of(leader.broker_id) if leader is not None else None
        me = self._member.report().broker_id
        if leader is None or report is None or leader.broker_id == me or report.is_store_away:
            return True
        request = LaneHandOverRequest(lane=lane, leader_epoch=leader.leader_epoch, to_broker_id=me)
        try:
            answer = await self._ask_while_it_lives(report, request)
        except BrokerUnavailable as error:
            log.warning("lane_not_handed_over lane=%d error=%s", lane, error)
            return False
        if answer.error_code != 0:
            log.info("lane_not_handed_over lane=%d error=%s", lane, answer.error_message)
        return answer.error_code == 0

    async def _ask_while_it_lives(
        self, owner: PeerReport, request: LaneHandOverRequest
    ) -> LaneHandOverResponse:
        """Ask for a lane, which may take long. Give up if its owner falls silent."""
        asking = asyncio.get_running_loop().create_task(
            self._network.ask(
                Address(owner.host, owner.port),
                request,
                LaneHandOverResponse,
                version=0,
                timeout_s=HAND_OVER_TIMEOUT_S,
            )
        )
        try:
            while not asking.done():
                await asyncio.wait({asking}, timeout=PING_INTERVAL_S)
                if not asking.done() and owner.broker_id not in self.peers.alive(self.now()):
                    raise BrokerUnavailable(f"broker {owner.broker_id} stopped answering")
            return asking.result()
        finally:
            asking.cancel()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
