"""Control batches, which mark the end of a transaction in a partition's log.

Pure. Owns the key and value of the one record in such a batch. Must never decide whether a
transaction ends.
"""

import struct
from typing import NamedTuple

from holdfast.errors import CorruptObject
from holdfast.records.batch import parse_header
from holdfast.records.compression import Buffer
from holdfast.records.record import Record, decode_batch, encode_batch

ABORT = 0
COMMIT = 1
VERSION = 0
"""Version of both key and value. A newer version may only add fields after these."""

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")


class TransactionMarker(NamedTuple):
    """The end of one producer's transaction on one partition."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    timestamp: int


def encode_marker(
    marker: TransactionMarker, *, base_offset: int = 0, leader_epoch: int = -1
) -> bytes:
    """Return the control batch of a marker."""
    record = Record(
        0,
        marker.timestamp,
        _KEY.pack(VERSION, COMMIT if marker.committed else ABORT),
        _VALUE.pack(VERSION, marker.coordinator_epoch),
    )
    return encode_batch(
        [record],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transactional=True,
        control=True,
    )


def decode_marker(batch: Buffer) -> TransactionMarker | None:
    """Return the marker in a control batch. None for a control record of another type."""
    header = parse_header(batch)
    if not header.is_control:
        raise CorruptObject(f"the batch at offset {header.base_offset} is no control batch")
    records = list(decode_batch(batch))
    key = records[0].key if len(records) == 1 else None
    if key is None or len(key) < _KEY.size:
        raise CorruptObject(
            f"the control batch at offset {header.base_offset} has {len(records)} records, or a"
            " key that says no type"
        )
    kind: int = _KEY.unpack_from(key)[1]
    if kind not in (ABORT, COMMIT):
        return None
    value = records[0].value
    if value is None or len(value) < _VALUE.size:
        raise CorruptObject(f"the marker at offset {header.base_offset} says no coordinator epoch")
    coordinator_epoch: int = _VALUE.unpack_from(value)[1]
    return TransactionMarker(
        header.producer_id,
        header.producer_epoch,
        kind == COMMIT,
        coordinator_epoch,
        records[0].timestamp,
    )
