"""The facts of the control lane: brokers, topics, configurations, producer ids.

Pure. Owns their encoding. Fields are positional: new ones go last, with a default.
"""

from collections.abc import Sequence
from uuid import UUID

import msgspec

FORMAT_VERSION_FIRST = 1
"""The format of stores whose first fact names none, because they are older than that field."""
FORMAT_VERSION = 1
"""The format that this release writes, and the newest that it reads."""


class ClusterCreated(msgspec.Struct, frozen=True, array_like=True, tag="C"):
    """The first fact of all: the cluster's id, its number of data lanes, which never changes, and
    the format of the store."""

    cluster_id: str
    lanes: int
    format_version: int = FORMAT_VERSION_FIRST


class BrokerRegistered(msgspec.Struct, frozen=True, array_like=True, tag="B"):
    """The address at which clients reach a broker."""

    broker_id: int
    host: str
    port: int
    rack: str | None = None
    incarnation: int = 0
    """The number of the process: of two with one broker id, the one with the higher counts."""


class TopicCreated(msgspec.Struct, frozen=True, array_like=True, tag="T"):
    """A topic was created; `lanes` has the lane of each partition."""

    topic_id: UUID
    name: str
    lanes: list[int]
    configs: dict[str, str]


class PartitionsAdded(msgspec.Struct, frozen=True, array_like=True, tag="P"):
    """Partitions were added to a topic; `lanes` has the lane of each new one."""

    topic_id: UUID
    lanes: list[int]


class TopicDeleted(msgspec.Struct, frozen=True, array_like=True, tag="D"):
    """The topic is gone for clients; its lanes still have to drop its partitions."""

    topic_id: UUID


class TopicPurged(msgspec.Struct, frozen=True, array_like=True, tag="U"):
    """All lanes have dropped the partitions of a deleted topic."""

    topic_id: UUID


class TopicConfigured(msgspec.Struct, frozen=True, array_like=True, tag="F"):
    """The topic's configurations have changed; `configs` has all that differ from the defaults."""

    topic_id: UUID
    configs: dict[str, str]


class ProducerIdsReserved(msgspec.Struct, frozen=True, array_like=True, tag="I"):
    """Producer ids below this were handed to a broker, and are never handed out again."""

    next_producer_id: int


class LanePlaced(msgspec.Struct, frozen=True, array_like=True, tag="L"):
    """An administrator wants a broker to own a lane; -1 means any broker."""

    lane: int
    broker_id: int


class FormatRaised(msgspec.Struct, frozen=True, array_like=True, tag="V"):
    """The store has a newer format from here on. This is the last fact of its lane object, so that
    a release which does not know the format stops before it meets facts that it cannot read."""

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
