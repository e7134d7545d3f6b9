"""The facts of a data lane: all that ever changes its logs, groups and transactions.

Pure. Owns their encoding. A fact is decided once, stored once, and applied by the same code on
the live path and in recovery. Fields are positional: new ones go last, with a default.
"""

from collections.abc import Sequence

import msgspec

from holdfast.groups.facts import GroupFact
from holdfast.identifiers import PartitionId
from holdfast.transactions.facts import TransactionFact


class SegmentRef(msgspec.Struct, frozen=True, array_like=True):
    """A one-partition object that holds a stretch of the log."""

    base_offset: int
    last_offset: int
    size_bytes: int
    """The record batches alone."""
    max_timestamp: int
    name: str
    """The last part of its key: unique for each attempt to write it."""
    data_start: int
    """Where in the object the record batches begin; the index is before them."""


class TransactionEnd(msgspec.Struct, frozen=True, array_like=True):
    """What a marker says: the producer's transaction on the partition is over."""

    committed: bool
    coordinator_epoch: int
    first_offset: int
    """Where the transaction began on this partition; -1 where it wrote nothing there."""


class Appended(msgspec.Struct, frozen=True, array_like=True, tag="a"):
    """One record batch joined a partition; its bytes are in the same object as this fact."""

    partition: PartitionId
    base_offset: int
    last_offset: int
    size_bytes: int
    max_timestamp: int
    crc: int
    """As the producer sent it."""
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    appended_ms: int = 0
    is_transactional: bool = False
    ends: TransactionEnd | None = None
    """Only of a control batch: the marker that ends a transaction."""
    leader_epoch: int = -1
    """Under which it was acknowledged, where that was an earlier claim: from that owner's disk."""


class LogStartMoved(msgspec.Struct, frozen=True, array_like=True, tag="s"):
    """Records below the offset are gone: by retention, or by DeleteRecords."""

    partition: PartitionId
    offset: int


class PartitionRemoved(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """The topic was deleted."""

    partition: PartitionId


class PartitionPurged(msgspec.Struct, frozen=True, array_like=True, tag="p"):
    """Nothing of a removed partition is left in the store."""

    partition: PartitionId


class RewrittenPartition(msgspec.Struct, frozen=True, array_like=True):
    """The segments that take the place of a partition's lane objects, and of older segments."""

    partition: PartitionId
    replaced: list[str]
    """Names of small segments that are merged into the first new one."""
    segments: list[SegmentRef]


class Rewritten(msgspec.Struct, frozen=True, array_like=True, tag="w"):
    """Everything in lane objects up to a number is now in segments."""

    up_to: int
    partitions: list[RewrittenPartition]


class ProducersExpired(msgspec.Struct, frozen=True, array_like=True, tag="e"):
    """Producers that wrote nothing since then are forgotten."""

    before_ms: int


class CeilingReserved(msgspec.Struct, frozen=True, array_like=True, tag="c"):
    """Offsets of a partition below the ceiling may be acknowledged from the disk of this claim."""

    partition: PartitionId
    ceiling: int
    """At most the end of the log: nothing is on a disk alone."""
    claim: int
    """The number of the claim whose spool holds what is past the end of the log in the store."""


class RecordsMissing(msgspec.Struct, frozen=True, array_like=True, tag="m"):
    """Offsets that may have been acknowledged from a disk that is not there; the log goes on."""

    partition: PartitionId
    base_offset: int
    last_offset: int
    claim: int
    """Whose disk it was."""
    missing_ms: int


LogFact = (
    Appended
    | LogStartMoved
    | PartitionRemoved
    | PartitionPurged
    | Rewritten
    | ProducersExpired
    | CeilingReserved
    | RecordsMissing
)
DataFact = LogFact | GroupFact | TransactionFact
"""All that an object of a data lane may say."""

_encoder = msgspec.msgpack.Encoder(uuid_format="bytes", order="deterministic")
_decoder = msgspec.msgpack.Decoder(list[DataFact])


def encode_facts(facts: Sequence[DataFact]) -> bytes:
    return _encoder.encode(facts)


def decode_facts(data: bytes) -> list[DataFact]:
    return _decoder.decode(data)
