"""One broker: the lanes that it owns, and the parts that its handlers share.

Owns start and stop, alone or as one of several on the same store. Must never serve a lane whose
newest claim is not its own.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from holdfast.broker.cluster.directory import Directory
from holdfast.broker.cluster.given_lanes import GivenLanes
from holdfast.broker.cluster.membership import Membership
from holdfast.broker.cluster.peer_network import PeerNetwork
from holdfast.broker.cluster.presence import Presence
from holdfast.broker.cluster.replicas import Replicas
from holdfast.broker.cluster.view import ClusterView, ControlLane
from holdfast.broker.cluster.waiting_room import WaitingRoom
from holdfast.broker.fetch_sessions import FetchSessions
from holdfast.broker.gaps import Gaps
from holdfast.broker.groups.group_lists import GroupLists
from holdfast.broker.groups.lane_groups import LaneGroups
from holdfast.broker.groups.matching import NameMatcher
from holdfast.broker.lanes.claiming import Claimer, check_lanes, refuse_other_lanes
from holdfast.broker.lanes.disk_acks import DiskAcks
from holdfast.broker.lanes.served import ServedLanes
from holdfast.broker.producer_ids import ProducerIds
from holdfast.broker.settings import BrokerSettings
from holdfast.broker.transactions.lane_transactions import LaneTransactions, admitted
from holdfast.broker.transactions.verification import (
    RequestOrder,
    TransactionalAppend,
    Underway,
    VerifyTransaction,
)
from holdfast.client.refusals import BrokerUnavailable
from holdfast.cluster.facts import FORMAT_VERSION, BrokerRegistered, ClusterCreated
from holdfast.cluster.peers import Leader, PeerReport
from holdfast.environment import Environment
from holdfast.errors import Fenced, HoldfastError, StopError
from holdfast.identifiers import CONTROL_LANE, BrokerId, LaneId, PartitionId, ProducerId
from holdfast.lane.claim import ClaimedLane
from holdfast.lane.lane import CLOSE_PATIENCE_S
from holdfast.lane.liveness import Liveness, NoProof
from holdfast.lane.spool.disk import Disk
from holdfast.log.data_lane import DataLane
from holdfast.log.memory import ReadCache, Tail
from holdfast.log.state import LogState
from holdfast.protocol.api import Refused
from holdfast.protocol.message import Message
from holdfast.protocol.messages.api_versions import ApiVersion
from holdfast.store.interface import Store

log = logging.getLogger("holdfast.broker")

DRAIN_LOOK_S = 0.05
R = TypeVar("R", bound=Message)


class Broker(Directory):
    """One broker process."""

    def __init__(
        self,
        *,
        store: Store,
        environment: Environment,
        settings: BrokerSettings,
        liveness: Liveness | None = None,
        network: PeerNetwork | None = None,
        disk: Disk | None = None,
    ) -> None:
        super().__init__()
        self.store = store
        self.environment = environment
        self.settings = settings
        self.network = network
        """The connections to other brokers. None means that this broker is alone: it takes all
        lanes, and ends when it loses one."""
        self.tail = Tail(settings.tail_bytes)
        self.cache = ReadCache(settings.cache_bytes)
        self.disk_acks = DiskAcks(
            disk=disk,
            look_every_s=settings.maintenance_interval_s,
            is_unclean=self._is_unclean,
            is_by_disk=self._is_by_disk,
        )
        self.turns = RequestOrder()
        self.matcher = NameMatcher()
        self.group_lists = GroupLists()
        self.underway = Underway()
        self.verify_transaction: VerifyTransaction = self._verify_transaction
        """The check that runs before a transaction's first batch joins a partition (KIP-890)."""
        self.fetch_sessions = FetchSessions(settings.fetch_sessions_max)
        self.served_apis: list[ApiVersion] = []
        """The APIs and versions in the response to ApiVersions."""
        self.lost: asyncio.Future[HoldfastError] = asyncio.get_running_loop().create_future()
        self.is_draining = False
        self._incarnation = environment.now_ms()
        self._has_incarnation = False
        """False until the registered incarnation is known. Until then ours may be lower, and a
        higher one does not mean that this broker was replaced."""
        self._claimer = Claimer(
            store=store,
            environment=environment,
            settings=settings,
            liveness=liveness or NoProof(),
        )
        self.view = ClusterView(
            store=store, environment=environment, settings=settings, on_lost=self._lost_control
        )
        self.served = ServedLanes(
            claimer=self._claimer,
            know_topics=self.view.prove,
            make_lane=self._make_lane,
            take_in=self.disk_acks.open,
            make_groups=self._make_groups,
            make_transactions=self._make_transactions,
            on_lost=self._lost_lane,
        )
        self.served.when_left.append(self.disk_acks.left)
        self.replicas = Replicas(store, environment, self.cache)
        served = self.served
        served.when_left.append(lambda _: self.underway.held_back.forget())
        self.waiting_room = WaitingRoom(served.expected, served.coming, served.going)
        self.gaps = Gaps(environment)
        self.membership = self._make_membership(network) if network is not None else None
        self.producer_ids = ProducerIds(self.view, self.ask_leader)
        self._given = GivenLanes(environment)
        self._is_controller = self._takes_control = False
        self._background: set[asyncio.Task[object]] = set()

    @property
    def control(self) -> ControlLane:
        """Return the control lane. Raises Fenced if this broker is not the controller."""
        if self.view.lane is None:
            raise Fenced("this broker is not the controller")
        return self.view.lane

    @property
    def is_controller(self) -> bool:
        return self._is_controller and self.view.lane is not None

    async def start(self) -> None:
        """Join the cluster. When this returns, requests may be answered."""
        await check_lanes(self.store, self.environment, self.settings.lanes)
        if self.membership is not None:
            await self.view.look()
            known = self.state.brokers.get(self.settings.broker_id)
            if known is not None:
                self._incarnation = max(self._incarnation, known.incarnation + 1)
                self._warn_of_another(known.host, known.port)
            self._has_incarnation = True
            self.cluster_known.set()
            await self._unless_lost(self.membership.join())
            return
        control = await self._claim_control()
        await self.served.take([LaneId(i + 1) for i in range(self.state.lanes)])
        await self._claimer.wait_out(control.claimed_lane)
        self._is_controller = True
        self.cluster_known.set()

    def _warn_of_another(self, host: str, port: int) -> None:
        """Warn if this broker's id was used at another address: such a broker ends now."""
        if (host, port) != (self.settings.host, self.settings.port):
            log.warning(
                "broker_id_was_used_elsewhere id=%d address=%s:%d: if that broker still runs, it"
                " stops now. Two brokers need two ids: give each its own --id",
                self.settings.broker_id,
                host,
                port,
            )

    async def _unless_lost(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work`, but stop it and raise if this broker is lost first.

        Without this, a broker that is replaced while it joins would try to join for ever.
        """
        joining = asyncio.get_running_loop().create_task(work)
        try:
            await asyncio.wait((joining, self.lost), return_when=asyncio.FIRST_COMPLETED)
            if self.lost.done() and not joining.done():
                raise self.lost.result()
        finally:
            joining.cancel()
        await joining

    async def _claim_control(self) -> ControlLane:
        control = await self.view.claim(self._claimer)
        if not self.state.cluster_id:
            cluster_id = str(self.environment.new_uuid())
            lanes = self.settings.lanes or self.settings.lanes_of_new_store
            control.add(ClusterCreated(cluster_id, lanes, FORMAT_VERSION))
        refuse_other_lanes(self.store, self.settings.lanes, self.state)
        self.register(self.report())
        await self.flush_control()
        return control

    def report(self) -> PeerReport:
        """Return this broker's report to the others."""
        lanes = {lane_id: lane.leader_epoch for lane_id, lane in self.lanes.items()}
        if self.is_controller:
            lanes[CONTROL_LANE] = self.control.leader_epoch
        return PeerReport(
            broker_id=self.settings.broker_id,
            incarnation=self._incarnation,
            host=self.settings.host,
            port=self.settings.port,
            rack=self.settings.rack,
            is_draining=self.is_draining,
            is_store_away=self.membership is not None and self.membership.is_store_away,
            control_number=self.view.number,
            lanes=lanes,
            cleared=dict(self.cleared),
            coming=frozenset(self.coming),
            given={lane: to for lane, to in self._given.now().items() if lane not in lanes},
            awaits={
                lane: awaited
                for lane, awaited in self.disk_acks.awaits.items()
                if lane in self.lanes
            },
        )

    def register(self, report: PeerReport) -> None:
        """Record a broker's address in the control lane if its incarnation is new."""
        registered = BrokerRegistered(
            report.broker_id, report.host, report.port, report.rack, report.incarnation
        )
        known = self.state.brokers.get(report.broker_id)
        # Of two brokers with the same incarnation the first stays. Otherwise they would replace
        # each other for ever.
        is_newer = known is None or known.incarnation < report.incarnation
        if self.control.is_open and is_newer:
            self.control.add(registered)

    async def look(self) -> None:
        await self.view.look()

    def expecting(self, lane: LaneId) -> AbstractContextManager[None]:
        return self.served.expecting(lane)

    async def take(self, lane: LaneId) -> None:
        """Claim a lane and serve it."""
        if lane != CONTROL_LANE:
            await self.served.take([lane])
            return
        self._takes_control = True
        try:
            control = await self._claim_control()
            await self._claimer.wait_out(control.claimed_lane)
            self._is_controller = True
        finally:
            self._takes_control = False

    @property
    def coming(self) -> set[LaneId]:
        """Return the lanes that this broker is taking over."""
        return {*self.served.coming, *([CONTROL_LANE] if self._takes_control else [])}

    async def hand_over(self, lane: LaneId, leader_epoch: int, to: BrokerId) -> bool:
        """Release a lane to another broker. Return True if this broker released it."""
        if self._given.is_giving(lane):
            return False  # the first broker that asked gets it
        served = self.control if lane == CONTROL_LANE and self.is_controller else None
        served = served or self.lanes.get(lane)
        if served is None or served.leader_epoch != leader_epoch:
            return False
        promised = Leader(to, leader_epoch + 1)
        try:
            with self._given.giving(lane, promised):
                await self._release(lane)
        except HoldfastError as error:
            log.warning("lane_not_handed_over lane=%d to=%d error=%s", lane, to, error)
            return False
        if self.membership is not None:
            self.membership.peers.hand_over(lane, promised)
            self.membership.news()
        log.info("lane_handed_over lane=%d to=%d", lane, to)
        return True

    async def _release(self, lane: LaneId) -> None:
        if lane != CONTROL_LANE:
            await self.served.hand_over(lane)
            return
        control = self.control
        self._is_controller = False
        try:
            await self.view.hand_over(control)
        finally:
            self._is_controller = self.view.lane is control and control.is_open

    async def drain(self, timeout_s: float) -> None:
        """Let other brokers take this broker's lanes, and serve each lane until it is taken."""
        self.is_draining = True
        membership = self.membership
        if membership is None:
            return
        membership.news()
        deadline = self.environment.monotonic() + timeout_s
        while self.environment.monotonic() < deadline:
            unable = {self.settings.broker_id, *membership.neighbours.reachability.unreachable()}
            others = [
                report
                for broker_id, report in membership.alive().items()
                if broker_id not in unable and not report.is_draining
            ]
            if not others or not self.report().lanes:
                return
            await asyncio.sleep(DRAIN_LOOK_S)

    async def stop(self, *, release: bool, patience_s: float = CLOSE_PATIENCE_S) -> list[LaneId]:
        """Put everything decided, close all lanes, and release them if asked, within `patience_s`.

        Return the lanes for which the store did not answer in time. Nothing that was acknowledged
        is lost then: the next owner waits until this one's proof is out of date.
        """
        if self.membership is not None:
            await self.membership.stop()
        for task in list(self._background):
            task.cancel()
        is_giving = self._given.is_giving(CONTROL_LANE)
        release_control = release and (self._is_controller or is_giving)
        kept, is_control_given = await asyncio.gather(
            self.served.give_all(release=release, patience_s=patience_s),
            self.view.give(release=release_control, patience_s=patience_s),
        )
        if self.network is not None:
            await self.network.close()
        return kept if is_control_given else [CONTROL_LANE, *kept]

    async def doubt(self, lane: LaneId) -> None:
        """Check in the store whether this broker still owns a lane."""
        owned = self.view.lane if lane == CONTROL_LANE else self.lanes.get(lane)
        if owned is not None:
            owned.doubt()
            try:
                await owned.validate()
            except HoldfastError as error:
                log.info("lane_ownership_not_confirmed lane=%d error=%s", lane, error)

    def replaced(self, host: str, port: int) -> None:
        if not self._has_incarnation:
            return
        self._end(
            Fenced(
                f"another broker with the id {self.settings.broker_id} has started at"
                f" {host}:{port}: give each broker its own --id"
            )
        )

    def _lost_control(self, error: HoldfastError) -> None:
        self._is_controller = False
        self._lost(CONTROL_LANE, error)

    def _lost_lane(self, lane: LaneId, error: HoldfastError) -> None:
        self.cleared.pop(lane, None)
        if self.membership is not None and not isinstance(error, StopError):
            self._spawn(self.served.forget(lane))
        self._lost(lane, error)

    def _lost(self, lane: LaneId, error: HoldfastError) -> None:
        if self.membership is None or isinstance(error, StopError):
            self._end(error)
            return
        log.warning("lane_lost lane=%d error=%s", lane, error)
        self.membership.taken_away(lane)
        self._spawn(self.view.look_if_possible())

    def _end(self, error: HoldfastError) -> None:
        if not self.lost.done():
            self.lost.set_result(error)

    def _spawn(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def ask_leader(
        self, lane: LaneId, request: Message, answer: type[R], *, version: int, timeout_s: float
    ) -> R:
        """Send a request to the other broker that leads a lane. Raises BrokerUnavailable."""
        leader = self.leader_of(lane)
        address = self.address_of(leader.broker_id) if leader is not None else None
        if self.network is None or address is None:
            raise BrokerUnavailable(f"no broker is known to lead lane {lane}; try again")
        return await self.network.ask(
            address, request, answer, version=version, timeout_s=timeout_s
        )

    async def flush_control(self) -> None:
        """Wait until everything decided about the cluster is durable."""
        await self.control.flush()

    def _make_membership(self, network: PeerNetwork) -> Membership:
        settings, environment = self.settings, self.environment
        membership = Membership(
            self,
            network,
            environment,
            Presence(self.store, environment, settings.broker_id),
            rejoin_wait_s=settings.rejoin_wait_s,
        )
        self.view.when_published = membership.news
        return membership

    def _make_lane(
        self, claimed: ClaimedLane[LogState], on_lost: Callable[[HoldfastError], None]
    ) -> DataLane:
        return DataLane(
            store=self.store,
            environment=self.environment,
            claimed=claimed,
            settings=self.settings.group,
            tail=self.tail,
            cache=self.cache,
            on_lost=on_lost,
            snapshot_every=self.settings.snapshot_every,
            disk=self.disk_acks.disk,
        )

    def _make_groups(self, lane: DataLane) -> LaneGroups:
        return LaneGroups(
            lane, self.environment, self.settings.groups, self.topics_of_groups, self.matcher
        )

    def _make_transactions(self, lane: DataLane) -> LaneTransactions:
        return LaneTransactions(lane, self, self.environment, self.settings.transactions)

    def _verify_transaction(self, append: TransactionalAppend) -> Refused | None:
        here = self.transactions_of(append.transactional_id or "")
        return self.underway.held_back.judged(append, admitted(here, append))

    def _is_unclean(self, partition: PartitionId) -> bool:
        topic = self.state.usable(partition.topic_id)
        return topic is not None and self.settings_of(topic).unclean

    def _is_by_disk(self, partition: PartitionId) -> bool:
        topic = self.state.usable(partition.topic_id)
        return topic is None or self.settings_of(topic).flush is not None

    async def new_producer_id(self) -> ProducerId:
        """Return a producer id that no producer has had before."""
        return await self.producer_ids.next()
