"""The facts of the control lane: brokers, topics, configurations, producer ids.

Pure. Owns their encoding. Fields are positional: new ones go last, with a default.
"""

from collections.abc import Sequence
from uuid import UUID

import msgspec

FORMAT_VERSION_FIRST = 1
"""Of stores whose first fact names none: they were made before it did."""
FORMAT_VERSION = 1
"""What this release writes, and the newest that it reads."""


class ClusterCreated(msgspec.Struct, frozen=True, array_like=True, tag="C"):
    """The first fact of all: the cluster's id, how many data lanes it has for ever, and the format
    of the store."""

    cluster_id: str
    lanes: int
    format_version: int = FORMAT_VERSION_FIRST


class BrokerRegistered(msgspec.Struct, frozen=True, array_like=True, tag="B"):
    """A broker says where clients reach it."""

    broker_id: int
    host: str
    port: int
    rack: str | None = None
    incarnation: int = 0
    """Of two processes with one id, the one with the higher number is meant."""


class TopicCreated(msgspec.Struct, frozen=True, array_like=True, tag="T"):
    """A topic, and the lane of each of its partitions."""

    topic_id: UUID
    name: str
    lanes: list[int]
    configs: dict[str, str]


class PartitionsAdded(msgspec.Struct, frozen=True, array_like=True, tag="P"):
    """More partitions; the lanes of the new ones."""

    topic_id: UUID
    lanes: list[int]


class TopicDeleted(msgspec.Struct, frozen=True, array_like=True, tag="D"):
    """The topic is gone for clients; its lanes still have to drop its partitions."""

    topic_id: UUID


class TopicPurged(msgspec.Struct, frozen=True, array_like=True, tag="U"):
    """All lanes have dropped the partitions of a deleted topic."""

    topic_id: UUID


class TopicConfigured(msgspec.Struct, frozen=True, array_like=True, tag="F"):
    """The configurations that differ from the defaults, all of them."""

    topic_id: UUID
    configs: dict[str, str]


class ProducerIdsReserved(msgspec.Struct, frozen=True, array_like=True, tag="I"):
    """Producer ids below this were handed to a broker, and are never handed out again."""

    next_producer_id: int


class LanePlaced(msgspec.Struct, frozen=True, array_like=True, tag="L"):
    """An administrator wants a lane at a broker; -1: at any."""

    lane: int
    broker_id: int


class FormatRaised(msgspec.Struct, frozen=True, array_like=True, tag="V"):
    """From here on the store has a newer format. It is the last fact of its lane object, so that a
    release which does not know the format stops before it meets facts that it cannot read."""

    format_version: int


ControlFact = (
    ClusterCreated
    | FormatRaised
    | BrokerRegistered
    | TopicCreated
    | PartitionsAdded
    | TopicDeleted
    | TopicPurged
    | TopicConfigured
    | ProducerIdsReserved
    | LanePlaced
)

_encoder = msgspec.msgpack.Encoder(uuid_format="bytes", order="deterministic")
_decoder = msgspec.msgpack.Decoder(list[ControlFact])


def encode_facts(facts: Sequence[ControlFact]) -> bytes:
    return _encoder.encode(facts)


def decode_facts(data: bytes) -> list[ControlFact]:
    return _decoder.decode(data)
