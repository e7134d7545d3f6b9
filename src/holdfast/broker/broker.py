"""A broker: the lanes that it owns, and how a request finds its partition.

Owns start and stop: claim the control lane, then the data lanes, wait out the owner before,
serve; and the other way round. Must never serve a lane whose claim is not its own.
"""

import asyncio
import dataclasses
import logging
from typing import Any
from uuid import UUID

from holdfast.broker.disk_acks import DiskAcks
from holdfast.broker.fetch_sessions import FetchSessions
from holdfast.broker.groups import LaneGroups, lane_of
from holdfast.broker.settings import BrokerSettings
from holdfast.broker.transactions import LaneTransactions
from holdfast.broker.verification import TransactionalAppend, Turns, VerifyTransaction
from holdfast.cluster.configs import TopicSettings, topic_settings
from holdfast.cluster.facts import (
    BrokerRegistered,
    ClusterCreated,
    ControlFact,
    ProducerIdsReserved,
)
from holdfast.cluster.state import ControlState, ControlStateKind, Topic
from holdfast.environment import Environment
from holdfast.errors import ConfigurationError, Fenced, HoldfastError
from holdfast.groups.topics import Topics, TopicShape
from holdfast.identifiers import CONTROL_LANE, LaneId, PartitionId, ProducerId
from holdfast.lane.claim import ClaimedLane, claim_lane
from holdfast.lane.entry import Claim
from holdfast.lane.liveness import Liveness, NoProof
from holdfast.lane.owned import OwnedLane
from holdfast.lane.recovery import recover
from holdfast.lane.spool.disk import Disk
from holdfast.lane.state import StateKind, StateT
from holdfast.log.append import Refused
from holdfast.log.data_lane import DataLane
from holdfast.log.memory import ReadCache, Tail
from holdfast.log.state import LogStateKind
from holdfast.protocol.messages.api_versions import ApiVersion
from holdfast.store.interface import Store
from holdfast.store.patience import patiently

log = logging.getLogger("holdfast.broker")

PRODUCER_ID_BLOCK = 1_000
CLOCK_RATE_MARGIN = 1.1
"""How much longer than the validity of a claim its successor waits: clocks differ in rate."""


@dataclasses.dataclass(frozen=True, slots=True)
class Led:
    """A partition that this broker leads."""

    topic: Topic
    partition: PartitionId
    lane: DataLane


class Broker:
    """One node."""

    def __init__(
        self,
        *,
        store: Store,
        environment: Environment,
        settings: BrokerSettings,
        liveness: Liveness | None = None,
        disk: Disk | None = None,
    ) -> None:
        self.store = store
        self.environment = environment
        self.settings = settings
        self.liveness: Liveness = liveness or NoProof()
        self.tail = Tail(settings.tail_bytes)
        self.cache = ReadCache(settings.cache_bytes)
        self.lanes: dict[LaneId, DataLane] = {}
        self.groups: dict[LaneId, LaneGroups] = {}
        self.transactions: dict[LaneId, LaneTransactions] = {}
        self.disk_acks = DiskAcks(
            disk=disk,
            look_every_s=settings.maintenance_interval_s,
            is_unclean=self._is_unclean,
            is_by_disk=self._is_by_disk,
        )
        self.turns = Turns()
        self.verify_transaction: VerifyTransaction = self._verify_transaction
        """Asked before a transaction's first batch joins a partition (KIP-890)."""
        self.fetch_sessions = FetchSessions(settings.fetch_sessions_max)
        self.served_apis: list[ApiVersion] = []
        """What an ApiVersions request is answered with."""
        self.lost: asyncio.Future[HoldfastError] = asyncio.get_running_loop().create_future()
        self._control: OwnedLane[ControlState, ControlFact] | None = None
        self._topics: tuple[int, Topics] = (-1, Topics({}))
        self._topic_settings: dict[UUID, tuple[dict[str, str], TopicSettings]] = {}
        self._producer_ids = (0, 0)
        self._producer_ids_lock = asyncio.Lock()
        self._serves = False

    @property
    def control(self) -> OwnedLane[ControlState, ControlFact]:
        """The control lane; only after start."""
        if self._control is None:
            raise Fenced("this broker has not started yet")
        return self._control

    @property
    def state(self) -> ControlState:
        return self.control.state

    async def start(self) -> None:
        """Own all lanes; when this returns, requests may be answered."""
        await self._check_lanes()
        control = await self._claim(CONTROL_LANE, ControlStateKind())
        self._control = OwnedLane(
            store=self.store,
            environment=self.environment,
            claimed=control,
            kind=ControlStateKind(),
            settings=dataclasses.replace(self.settings.group, linger_ms=0),
            snapshot_every=self.settings.snapshot_every,
            on_lost=self._lost,
        )
        self._register()
        lanes = [LaneId(i + 1) for i in range(self.state.lanes)]
        kind = LogStateKind()
        claimed = await asyncio.gather(*(self._claim(lane, kind) for lane in lanes))
        for lane in claimed:
            self.lanes[lane.cursor.lane] = DataLane(
                store=self.store,
                environment=self.environment,
                claimed=lane,
                settings=self.settings.group,
                tail=self.tail,
                cache=self.cache,
                on_lost=self._lost,
                snapshot_every=self.settings.snapshot_every,
                disk=self.disk_acks.disk,
            )
        await self.flush_control()
        await self._prove_control()
        await self._wait_out_owners(control, *claimed)
        await asyncio.gather(*(self.disk_acks.open(lane) for lane in self.lanes.values()))
        for lane_id, lane in self.lanes.items():
            self.groups[lane_id] = LaneGroups(
                lane, self.environment, self.settings.groups, self.topics_of_groups
            )
        for lane_id, lane in self.lanes.items():
            self.transactions[lane_id] = LaneTransactions(
                lane, self, self.environment, self.settings.transactions
            )
        self._serves = True

    async def _prove_control(self) -> None:
        """Look at the control lane once more, now that the data lanes are ours.

        Else a topic may have been deleted, and its partitions dropped from a lane, between our two
        claims: we would take it for an empty topic, and hand out its offsets again.
        """
        appender = self.control.appender
        appender.doubt()
        await patiently(appender.validate, environment=self.environment)

    async def _check_lanes(self) -> None:
        """A broker that cannot serve must find out before it takes a lane from one that does."""
        if self.settings.lanes is not None:
            recovered = await recover(
                self.store, self.environment, CONTROL_LANE, ControlStateKind()
            )
            self._refuse_other_lanes(recovered.state)

    def _refuse_other_lanes(self, state: ControlState) -> None:
        wanted = self.settings.lanes
        if state.cluster_id and wanted is not None and wanted != state.lanes:
            raise ConfigurationError(
                f"{self.store.url} was made with {state.lanes} data lanes, and their number never"
                f" changes: start without --lanes, or with --lanes {state.lanes}"
            )

    async def _claim(self, lane: LaneId, kind: StateKind[StateT]) -> ClaimedLane[StateT]:
        identity = self.liveness.identity()
        claim = Claim(
            broker_id=self.settings.broker_id,
            address=f"{self.settings.host}:{self.settings.port}",
            claimed_ms=self.environment.now_ms(),
            machine=identity.machine,
            process=identity.process,
            process_start=identity.process_start,
            valid_ms=self.settings.group.claim_valid_ms,
        )
        claimed = await claim_lane(self.store, self.environment, lane, kind, claim, self.liveness)
        log.info(
            "lane_claimed lane=%d number=%d leader_epoch=%d entries_replayed=%d",
            lane,
            claimed.cursor.claim,
            claimed.cursor.leader_epoch,
            claimed.entries_read,
        )
        return claimed

    def _register(self) -> None:
        state, appender = self.state, self.control.appender
        self._refuse_other_lanes(state)
        if not state.cluster_id:
            cluster_id = str(self.environment.new_uuid())
            appender.add(
                ClusterCreated(cluster_id, self.settings.lanes or self.settings.lanes_of_new_store)
            )
        registered = BrokerRegistered(
            self.settings.broker_id, self.settings.host, self.settings.port, self.settings.rack
        )
        if state.brokers.get(self.settings.broker_id) != registered:
            appender.add(registered)

    async def _wait_out_owners(self, *lanes: ClaimedLane[Any]) -> None:
        """An owner that neither released nor is proved dead may answer a little longer."""
        until = max(lane.claimed_at + lane.owed_ms / 1000 * CLOCK_RATE_MARGIN for lane in lanes)
        wait_s = until - self.environment.monotonic()
        if wait_s > 0:
            log.info("waiting_for_the_owner_before seconds=%.1f", wait_s)
            await asyncio.sleep(wait_s)

    async def stop(self, *, release: bool) -> None:
        """Put what is decided, and leave the lanes to the next owner.

        Before the owners before were waited for there is no release: their answers may go on.
        """
        lanes = [*self.lanes.values(), *([self._control] if self._control is not None else [])]
        release = release and self._serves
        for groups in self.groups.values():
            groups.end()
        await asyncio.gather(*(lane.close(release=release) for lane in lanes))

    def _lost(self, error: HoldfastError) -> None:
        if not self.lost.done():
            self.lost.set_result(error)

    async def flush_control(self) -> None:
        """Wait until all that was decided about the cluster is durable."""
        await self.control.appender.flush()

    def led(self, topic: Topic | None, partition: int) -> Led | None:
        """The partition of a usable topic, where this broker owns its lane."""
        if topic is None:
            return None
        lane_id = topic.lane_of(partition)
        lane = self.lanes.get(lane_id) if lane_id is not None else None
        if lane is None:
            return None
        return Led(topic, PartitionId(topic.topic_id, partition), lane)

    def groups_of(self, group_id: str) -> LaneGroups:
        """The coordinator of a group."""
        return self.groups[lane_of(group_id, self.state.lanes)]

    def transactions_of(self, transactional_id: str) -> LaneTransactions:
        """The coordinator of a transactional id."""
        return self.transactions[lane_of(transactional_id, self.state.lanes)]

    def _verify_transaction(self, append: TransactionalAppend) -> Refused | None:
        name = append.transactional_id
        if not name:
            return Refused("INVALID_RECORD", "a transactional batch without a transactional id")
        return self.transactions_of(name).admit(append)

    def lane_of_partition(self, partition: PartitionId) -> DataLane | None:
        """The lane of a partition; None where its topic is gone."""
        led = self.led(self.state.usable(partition.topic_id), partition.partition)
        return led.lane if led is not None else None

    def topics_of_groups(self) -> Topics:
        """The topics as groups see them; the same object until they change."""
        revision = self.state.topics_revision
        if self._topics[0] != revision:
            found = {
                topic.name: TopicShape(topic.topic_id, topic.partitions)
                for topic in self.state.topics.values()
                if topic.partitions > 0
            }
            self._topics = (revision, Topics(found))
        return self._topics[1]

    def settings_of(self, topic: Topic) -> TopicSettings:
        """A topic's configurations, read once for each change of them."""
        known = self._topic_settings.get(topic.topic_id)
        if known is None or known[0] is not topic.configs:
            if len(self._topic_settings) > 2 * len(self.state.topics):
                self._topic_settings.clear()  # mostly those of topics that are gone
            known = (topic.configs, topic_settings(topic.configs))
            self._topic_settings[topic.topic_id] = known
        return known[1]

    def _is_unclean(self, partition: PartitionId) -> bool:
        topic = self.state.usable(partition.topic_id)
        return topic is not None and self.settings_of(topic).unclean

    def _is_by_disk(self, partition: PartitionId) -> bool:
        topic = self.state.usable(partition.topic_id)
        return topic is None or self.settings_of(topic).flush is not None

    async def new_producer_id(self) -> ProducerId:
        """An id that nobody had before: blocks of them are reserved in the control lane."""
        async with self._producer_ids_lock:
            first, end = self._producer_ids
            if first == end:
                first = self.state.next_producer_id
                end = first + PRODUCER_ID_BLOCK
                self.control.appender.add(ProducerIdsReserved(end))
                await self.flush_control()
            self._producer_ids = (first + 1, end)
            return ProducerId(first)
