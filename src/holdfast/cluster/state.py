"""The state of the cluster in the control lane: brokers, topics and configurations.

Pure. Owns visibility: a topic, or a partition of one, can be used only when the object that
created it is durable. Otherwise records could be acknowledged in a topic that a crash undoes.
"""

from collections.abc import Sequence
from uuid import UUID

import msgspec

from holdfast import __version__
from holdfast.cluster.facts import (
    FORMAT_VERSION,
    FORMAT_VERSION_FIRST,
    BrokerRegistered,
    ClusterCreated,
    ControlFact,
    FormatRaised,
    LanePlaced,
    PartitionsAdded,
    ProducerIdsReserved,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
    TopicPurged,
    decode_facts,
    encode_facts,
)
from holdfast.errors import NewerFormat
from holdfast.identifiers import LaneId, PartitionId
from holdfast.lane.entry import Buffer, EntryHeader


def known_format(version: int) -> int:
    """Return the version; NewerFormat if this release cannot read it and so must not trust it."""
    if version > FORMAT_VERSION:
        raise NewerFormat(
            f"the store has format {version}, and holdfast {__version__} reads formats up to"
            f" {FORMAT_VERSION}: use the release that wrote the store, or a newer one"
        )
    return version


class Topic(msgspec.Struct, kw_only=True):
    """One topic. Mutable: partitions and configurations change."""

    topic_id: UUID
    name: str
    lanes: list[int]
    """The lane of each decided partition; only the first `partitions` are usable yet."""
    configs: dict[str, str]
    partitions: int = 0

    def lane_of(self, partition: int) -> LaneId | None:
        """Return the lane of a usable partition; None for any other."""
        return LaneId(self.lanes[partition]) if 0 <= partition < self.partitions else None

    def partition_ids(self) -> list[PartitionId]:
        return [PartitionId(self.topic_id, i) for i in range(len(self.lanes))]


class ControlState(msgspec.Struct, kw_only=True):
    """The state of the cluster."""

    cluster_id: str = ""
    lanes: int = 0
    format_version: int = FORMAT_VERSION_FIRST
    brokers: dict[int, BrokerRegistered] = {}
    topics: dict[UUID, Topic] = {}
    deleted: dict[UUID, Topic] = {}
    """Deleted topics whose partitions may still be in their lanes."""
    next_producer_id: int = 0
    names: dict[str, UUID] = {}
    placed: dict[int, int] = {}
    """The broker at which an administrator wants a lane, by lane."""
    controller_epoch: int = -1
    load: dict[int, int] = {}
    """How many partitions each lane has; derived from the topics."""
    topics_revision: int = 0
    """A number that moves whenever the topics that clients may use, or their partitions, change."""

    def topic_named(self, name: str) -> Topic | None:
        """Return the topic of that name, if clients may use it."""
        topic_id = self.names.get(name)
        return self.usable(topic_id) if topic_id is not None else None

    def usable(self, topic_id: UUID) -> Topic | None:
        """Return the topic with that id, if clients may use it."""
        topic = self.topics.get(topic_id)
        return topic if topic is not None and topic.partitions > 0 else None

    def apply(self, fact: ControlFact) -> None:
        match fact:
            case ClusterCreated():
                self.cluster_id, self.lanes = fact.cluster_id, fact.lanes
                self.format_version = known_format(fact.format_version)
            case FormatRaised():
                self.format_version = known_format(fact.format_version)
            case BrokerRegistered():
                self.brokers[fact.broker_id] = fact
            case TopicCreated():
                self.topics[fact.topic_id] = Topic(
                    topic_id=fact.topic_id,
                    name=fact.name,
                    lanes=list(fact.lanes),
                    configs=dict(fact.configs),
                )
                self.names[fact.name] = fact.topic_id
                self.count(fact.lanes, 1)
            case PartitionsAdded():
                self.topics[fact.topic_id].lanes.extend(fact.lanes)
                self.count(fact.lanes, 1)
            case TopicDeleted():
                topic = self.topics.pop(fact.topic_id)
                self.deleted[fact.topic_id] = topic
                self.topics_revision += 1
                self.count(topic.lanes, -1)
                if self.names.get(topic.name) == fact.topic_id:
                    del self.names[topic.name]
            case TopicPurged():
                self.deleted.pop(fact.topic_id, None)
            case TopicConfigured():
                self.topics[fact.topic_id].configs = dict(fact.configs)
            case LanePlaced():
                self.placed[fact.lane] = fact.broker_id
                if fact.broker_id < 0:
                    del self.placed[fact.lane]
            case ProducerIdsReserved():
                self.next_producer_id = max(self.next_producer_id, fact.next_producer_id)

    def count(self, lanes: Sequence[int], change: int) -> None:
        """Note that partitions came to lanes, or left them."""
        for lane in lanes:
            self.load[lane] = self.load.get(lane, 0) + change

    def publish(self, facts: Sequence[ControlFact]) -> None:
        for fact in facts:
            if isinstance(fact, TopicCreated | PartitionsAdded):
                topic = self.topics.get(fact.topic_id)
                if topic is not None:
                    topic.partitions += len(fact.lanes)
                    self.topics_revision += 1

    def layout(
        self, facts: Sequence[ControlFact], payloads: Sequence[Buffer | None]
    ) -> list[Buffer]:
        del facts, payloads  # a control lane has facts only
        return []

    def index(self, header: EntryHeader, facts: Sequence[ControlFact]) -> None:
        """Do nothing: a control lane stores nothing besides facts."""

    def claimed(self, header: EntryHeader, leader_epoch: int) -> None:
        self.controller_epoch = leader_epoch

    def encode(self) -> bytes:
        """Return the same bytes for the same state, in whatever order its topics came."""
        return _encoder.encode(
            msgspec.structs.replace(
                self,
                brokers=dict(sorted(self.brokers.items())),
                topics=_by_id(self.topics),
                deleted=_by_id(self.deleted),
                names=dict(sorted(self.names.items())),
                placed=dict(sorted(self.placed.items())),
                load={},
            )
        )

    def spread(self, partitions: int) -> list[int]:
        """Return a lane for each new partition, always one that has the fewest partitions."""
        load = {lane: self.load.get(lane, 0) for lane in range(1, self.lanes + 1)}
        chosen: list[int] = []
        for _ in range(partitions):
            lane = min(load, key=lambda lane: (load[lane], lane))
            load[lane] += 1
            chosen.append(lane)
        return chosen


def _by_id(topics: dict[UUID, Topic]) -> dict[UUID, Topic]:
    found = sorted(topics.values(), key=lambda topic: topic.topic_id.int)
    return {topic.topic_id: _with_sorted_configs(topic) for topic in found}


def _with_sorted_configs(topic: Topic) -> Topic:
    return msgspec.structs.replace(topic, configs=dict(sorted(topic.configs.items())))


_encoder = msgspec.msgpack.Encoder(uuid_format="bytes")
_decoder = msgspec.msgpack.Decoder(ControlState)


class ControlStateKind:
    """The part of the control lane that makes, encodes and decodes its state."""

    def empty(self) -> ControlState:
        return ControlState()

    def decode(self, data: bytes) -> ControlState:
        state = _decoder.decode(data)
        known_format(state.format_version)
        state.load = {}
        for topic in state.topics.values():
            topic.partitions = len(topic.lanes)  # a snapshot counts only when it is durable
            state.count(topic.lanes, 1)
        return state

    def encode_facts(self, facts: Sequence[ControlFact]) -> bytes:
        return encode_facts(facts)

    def decode_facts(self, data: bytes) -> Sequence[ControlFact]:
        return decode_facts(data)
