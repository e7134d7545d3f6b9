"""The facts of a data lane: everything that changes its logs, groups and transactions.

Pure. Owns their encoding. A fact is decided once, stored once, and applied by the same code on
the live path and in recovery. Fields are positional: new ones go last, with a default.
"""

from collections.abc import Sequence

import msgspec

from holdfast.groups.facts import GroupFact
from holdfast.identifiers import PartitionId
from holdfast.transactions.facts import TransactionFact


class SegmentRef(msgspec.Struct, frozen=True, array_like=True):
    """A segment: an object that holds a stretch of one partition's log."""

    base_offset: int
    last_offset: int
    size_bytes: int
    """The size of the record batches, without the index."""
    max_timestamp: int
    name: str
    """The last part of its key, which is unique for each attempt to write the segment."""
    data_start: int
    """The position of the record batches in the object; the index is before them."""


class TransactionEnd(msgspec.Struct, frozen=True, array_like=True):
    """The content of a marker, which ends a producer's transaction on the partition."""

    committed: bool
    coordinator_epoch: int
    first_offset: int
    """The offset where the transaction began on this partition; -1 if it wrote nothing there."""


class Appended(msgspec.Struct, frozen=True, array_like=True, tag="a"):
    """One record batch joined a partition; its bytes are in the same object as this fact."""

    partition: PartitionId
    base_offset: int
    last_offset: int
    size_bytes: int
    max_timestamp: int
    crc: int
    """The batch's CRC as the producer sent it."""
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    appended_ms: int = 0
    is_transactional: bool = False
    ends: TransactionEnd | None = None
    """The end of a transaction, if the batch is its marker; None for all other batches."""
    leader_epoch: int = -1
    """The leader epoch of the earlier owner, if the batch was replayed from that owner's disk;
    -1 otherwise."""


class LogStartMoved(msgspec.Struct, frozen=True, array_like=True, tag="s"):
    """Records below the offset are deleted, by retention or by DeleteRecords."""

    partition: PartitionId
    offset: int


class PartitionRemoved(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """The partition's topic was deleted."""

    partition: PartitionId


class PartitionPurged(msgspec.Struct, frozen=True, array_like=True, tag="p"):
    """Nothing of a removed partition is left in the store."""

    partition: PartitionId


class RewrittenPartition(msgspec.Struct, frozen=True, array_like=True):
    """The segments that replace a partition's lane objects, and older segments."""

    partition: PartitionId
    replaced: list[str]
    """Names of small segments that are merged into the first new one."""
    segments: list[SegmentRef]


class Rewritten(msgspec.Struct, frozen=True, array_like=True, tag="w"):
    """Everything in lane objects up to a number is now in segments."""

    up_to: int
    partitions: list[RewrittenPartition]


class ProducersExpired(msgspec.Struct, frozen=True, array_like=True, tag="e"):
    """Producers that wrote nothing since `before_ms` are forgotten."""

    before_ms: int


class CeilingReserved(msgspec.Struct, frozen=True, array_like=True, tag="c"):
    """Offsets of a partition below the ceiling may be acknowledged from the disk of this claim."""

    partition: PartitionId
    ceiling: int
    """An offset. If it is not past the end of the log, no record is only on a disk."""
    claim: int
    """The number of the claim whose spool holds the records past the end of the stored log."""


class RecordsMissing(msgspec.Struct, frozen=True, array_like=True, tag="m"):
    """Offsets that may have been acknowledged from a missing disk. The log continues after them."""

    partition: PartitionId
    base_offset: int
    last_offset: int
    claim: int
    """The number of the claim whose disk is missing."""
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
"""Any fact that an object of a data lane may hold."""

_encoder = msgspec.msgpack.Encoder(uuid_format="bytes", order="deterministic")
_decoder = msgspec.msgpack.Decoder(list[DataFact])


def encode_facts(facts: Sequence[DataFact]) -> bytes:
    return _encoder.encode(facts)


def decode_facts(data: bytes) -> list[DataFact]:
    return _decoder.decode(data)
