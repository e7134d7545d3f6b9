"""A snapshot: the state of a lane as of one number, as a shortcut for recovery.

Pure. Owns the format. A snapshot is trusted for exactly the number it names. It carries the cursor
too, so that the next object is checked against the hash chain: that way a snapshot of another
history is recognised.
"""

import struct
from typing import NamedTuple

from fastcrc import crc32

from holdfast.errors import CorruptObject
from holdfast.identifiers import LaneId, LaneNumber, LeaderEpoch, WriterId
from holdfast.lane.cursor import Cursor

MAGIC = b"HFS1"
_FIELDS = struct.Struct(">4sHQ16sQ16siBQI")
_CRC = struct.Struct(">I")
HEADER_BYTES = _FIELDS.size + _CRC.size


class Snapshot(NamedTuple):
    """The cursor after the number that the snapshot covers, and the state as bytes."""

    cursor: Cursor
    state: bytes

    @property
    def number(self) -> LaneNumber:
        return LaneNumber(self.cursor.next_number - 1)


def encode_snapshot(cursor: Cursor, state: bytes) -> bytes:
    fields = _FIELDS.pack(
        MAGIC,
        cursor.lane,
        cursor.next_number - 1,
        cursor.hash,
        cursor.claim,
        cursor.writer or bytes(16),
        cursor.leader_epoch,
        cursor.released,
        len(state),
        crc32.iscsi(state),
    )
    return fields + _CRC.pack(crc32.iscsi(fields)) + state


def decode_snapshot(data: bytes, *, key: str, lane: LaneId, number: LaneNumber) -> Snapshot:
    """Check and decode the snapshot at the key of (lane, number)."""
    if len(data) < HEADER_BYTES or data[:4] != MAGIC:
        raise CorruptObject(f"{key}: it is not a snapshot ({len(data)} bytes)")
    if _CRC.unpack_from(data, _FIELDS.size)[0] != crc32.iscsi(data[: _FIELDS.size]):
        raise CorruptObject(f"{key}: the header's checksum is wrong")
    _, its_lane, its_number, hash_, claim, writer, leader_epoch, released, size, crc = (
        _FIELDS.unpack_from(data)
    )
    if (its_lane, its_number) != (lane, number):
        raise CorruptObject(f"{key}: its header says number {its_number} of lane {its_lane}")
    state = data[HEADER_BYTES:]
    if len(state) != size or crc32.iscsi(state) != crc:
        raise CorruptObject(f"{key}: the state's length or checksum is wrong")
    cursor = Cursor(
        lane=lane,
        next_number=LaneNumber(its_number + 1),
        hash=hash_,
        claim=LaneNumber(claim),
        writer=WriterId(writer),
        leader_epoch=LeaderEpoch(leader_epoch),
        released=bool(released),
    )
    return Snapshot(cursor, state)
