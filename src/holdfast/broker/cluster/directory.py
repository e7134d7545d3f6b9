"""One broker's directory: the lanes that it serves, and the leaders of all other lanes.

Owns how a request finds its partition, its group or its transactional id. Must never change
anything.
"""

import asyncio
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from uuid import UUID

from holdfast.broker.cluster.membership import Membership
from holdfast.broker.cluster.view import ClusterView
from holdfast.broker.groups.lane_groups import LaneGroups, lane_of
from holdfast.broker.lanes.served import ServedLanes
from holdfast.broker.settings import BrokerSettings
from holdfast.broker.transactions.lane_transactions import LaneTransactions
from holdfast.client.address import Address
from holdfast.cluster.configs import TopicSettings, may_be_followed, topic_settings
from holdfast.cluster.peers import Leader, PeerReport
from holdfast.cluster.state import ControlState, Topic
from holdfast.environment import Environment
from holdfast.groups.topics import Topics, TopicShape
from holdfast.identifiers import CONTROL_LANE, BrokerId, LaneId, PartitionId
from holdfast.log.data_lane import DataLane
from holdfast.protocol.api import ErrorCode


@dataclasses.dataclass(frozen=True, slots=True)
class Led:
    """A partition that this broker leads."""

    topic: Topic
    partition: PartitionId
    lane: DataLane


class PartitionPlace(NamedTuple):
    """The leader and the replicas of one partition."""

    partition: int
    leader: Leader | None
    """The leader, or None if no broker serves the partition now."""
    replicas: list[int]
    """The leader, and the brokers that serve its records to readers in their own rack."""


class Directory(ABC):
    """The places of partitions, groups and transactional ids, as one broker knows them."""

    settings: BrokerSettings
    environment: Environment
    view: ClusterView
    served: ServedLanes
    membership: Membership | None

    def __init__(self) -> None:
        self.cluster_known = asyncio.Event()
        """Set once the control lane has been read. Responses can name topics and brokers then."""
        self.cleared: dict[LaneId, int] = {}
        """For each lane, how far the control lane was known when it held no deleted topic."""
        self._topics: tuple[int, Topics] = (-1, Topics({}))
        self._topic_settings: dict[UUID, tuple[dict[str, str], TopicSettings]] = {}

    @abstractmethod
    def report(self) -> PeerReport:
        """Return this broker's report to the others."""

    @property
    def state(self) -> ControlState:
        return self.view.state

    @property
    def lanes(self) -> dict[LaneId, DataLane]:
        return self.served.lanes

    @property
    def groups(self) -> dict[LaneId, LaneGroups]:
        return self.served.groups

    @property
    def transactions(self) -> dict[LaneId, LaneTransactions]:
        return self.served.transactions

    def alive(self) -> list[PeerReport]:
        """Return the reports of all brokers that answer, this one included, by broker id."""
        if self.membership is None:
            return [self.report()]
        return [report for _, report in sorted(self.membership.alive().items())]

    def placed(self, topic: Topic, partitions: range) -> Iterator[PartitionPlace]:
        """Yield the leader and the replicas of each of these partitions of a usable topic."""
        may_read = self.membership is not None and may_be_followed(topic.configs)
        readers = [each.broker_id for each in self.alive() if each.rack] if may_read else []
        lanes = {LaneId(lane) for lane in topic.lanes[partitions.start : partitions.stop]}
        leaders = {lane: self.leader_of(lane) or self._promised_leader_of(lane) for lane in lanes}
        for index in partitions:
            leader = leaders[LaneId(topic.lanes[index])]
            led = self.led(topic, index)
            if leader is None or (led is not None and led.lane.is_offline(led.partition)):
                yield PartitionPlace(index, None, [])
            else:
                beside = [reader for reader in readers if reader != leader.broker_id]
                yield PartitionPlace(index, leader, [leader.broker_id, *beside])

    def _promised_leader_of(self, lane: LaneId) -> Leader | None:
        # Without a leader here, clients would forget the next leader that they have heard of.
        return self.membership.promised_leader_of(lane) if self.membership is not None else None

    def controller_id(self) -> int:
        """Return the broker id of the controller, or -1 if none is known."""
        leader = self.leader_of(CONTROL_LANE)
        return leader.broker_id if leader is not None else -1

    def report_of(self, broker_id: BrokerId) -> PeerReport | None:
        """Return a broker's newest report, or None if there is none."""
        if broker_id == self.settings.broker_id:
            return self.report()
        return self.membership.peers.report_of(broker_id) if self.membership is not None else None

    def address_of(self, broker_id: BrokerId) -> Address | None:
        """Return the address of another broker, or None if it is not known."""
        if broker_id == self.settings.broker_id:
            return None
        report = self.report_of(broker_id)
        return Address(report.host, report.port) if report is not None else None

    def led(self, topic: Topic | None, partition: int) -> Led | None:
        """Return a partition of a usable topic, or None if this broker does not own its lane."""
        if topic is None:
            return None
        lane_id = topic.lane_of(partition)
        lane = self.lanes.get(lane_id) if lane_id is not None else None
        if lane is None:
            return None
        return Led(topic, PartitionId(topic.topic_id, partition), lane)

    def lanes_of(self, partitions: Iterable[tuple[str, int]]) -> set[LaneId]:
        """Return the lanes of these partitions of usable topics, whichever brokers lead them."""
        topics = ((self.state.topic_named(name), partition) for name, partition in partitions)
        lanes = (topic.lane_of(partition) for topic, partition in topics if topic is not None)
        return {lane for lane in lanes if lane is not None}

    def leader_of(self, lane: LaneId) -> Leader | None:
        """Return the leader of a lane's partitions, as far as this broker knows."""
        served = self.view.lane if lane == CONTROL_LANE else self.lanes.get(lane)
        if served is not None and served.is_open:
            return Leader(self.settings.broker_id, served.leader_epoch)
        return self.membership.leader_of(lane) if self.membership is not None else None

    def next_leader_of(self, lane: LaneId) -> Leader | None:
        """Return the leader of a lane, or the broker to which it has just been handed over."""
        membership = self.membership
        if lane in self.lanes or membership is None:
            return self.leader_of(lane)
        return membership.peers.next_leader_of(lane, self.environment.monotonic())

    def not_led(self, topic: Topic | None, partition: int) -> ErrorCode:
        """Return the error for a partition that this broker does not lead."""
        if topic is None or topic.lane_of(partition) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def lane_of_name(self, name: str) -> LaneId:
        """Return the lane that coordinates a group or a transactional id."""
        return lane_of(name, self.state.lanes)

    def groups_of(self, group_id: str) -> LaneGroups | ErrorCode:
        """Return the coordinator of a group, or the error to answer if it is not on this broker.

        A broker that is still joining does not know how many lanes there are, and coordinates
        nothing.
        """
        found = self.groups.get(self.lane_of_name(group_id)) if self.state.lanes else None
        return found if found is not None else ErrorCode.NOT_COORDINATOR

    def transactions_of(self, transactional_id: str) -> LaneTransactions | ErrorCode:
        """Return the coordinator of a transactional id, or the error, as `groups_of` does."""
        if not self.state.lanes:
            return ErrorCode.NOT_COORDINATOR
        found = self.transactions.get(self.lane_of_name(transactional_id))
        return found if found is not None else ErrorCode.NOT_COORDINATOR

    def place_of(self, partition: PartitionId) -> DataLane | LaneId | None:
        """Return the lane of a partition, or only its id if another broker leads it.

        Return None if the partition's topic is deleted, or not known here yet.
        """
        topic = self.state.usable(partition.topic_id)
        lane_id = topic.lane_of(partition.partition) if topic is not None else None
        return self.lanes.get(lane_id, lane_id) if lane_id is not None else None

    def cleared_number(self) -> int:
        """Return how far the control lane was known when no lane held any deleted topic."""
        lanes = [LaneId(lane) for lane in range(1, self.state.lanes + 1)]
        return min(self._cleared_in(lane) for lane in lanes)

    def _cleared_in(self, lane: LaneId) -> int:
        if lane in self.lanes:
            return self.cleared.get(lane, -1)
        membership = self.membership
        if membership is None:
            return -1
        return membership.peers.cleared_number(lane, self.environment.monotonic())

    def topics_of_groups(self) -> Topics:
        """Return the topics as groups see them. It is the same object until the topics change."""
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
        """Return a topic's configurations. They are parsed once for each change."""
        known = self._topic_settings.get(topic.topic_id)
        if known is None or known[0] is not topic.configs:
            if len(self._topic_settings) > 2 * len(self.state.topics):
                self._topic_settings.clear()  # most entries are of deleted topics
            known = (topic.configs, topic_settings(topic.configs))
            self._topic_settings[topic.topic_id] = known
        return known[1]
