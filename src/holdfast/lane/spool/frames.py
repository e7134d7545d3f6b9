"""The frames of a spool file, one after the other, each in the format of a lane entry.

Pure. Owns how far a file is trusted: each frame must be whole, belong to the file's lane, claim and
writer, and continue the hash chain. The first frame that does not ends the trusted part.
A frame names the lane object that it follows, if that was not in the store yet when it was written.
"""

import dataclasses
import struct
from typing import NamedTuple

from holdfast.errors import CorruptObject
from holdfast.identifiers import LaneId, LaneNumber, WriterId
from holdfast.lane.entry import (
    HEADER_BYTES,
    MAGIC,
    EntryHeader,
    check_payload,
    facts_of,
    parse_header,
)


class SpoolId(NamedTuple):
    """The identity of a spool: one claim of a lane, by one writer."""

    lane: LaneId
    claim: LaneNumber
    writer: WriterId


class Frame(NamedTuple):
    """The facts and record batches of one durable write to the disk."""

    header: EntryHeader
    after: LaneNumber | None
    """The lane object that the frame follows. Without it in the store, the frame was never
    acknowledged."""
    facts: bytes
    payload: memoryview


_AFTER = struct.Struct(">Q")
_NOTHING = 0
"""The stored form of "follows no object". Number 0 is free for it, because it is a claim."""


def frame_facts(facts: bytes, after: LaneNumber | None) -> bytes:
    """Return a frame's facts as stored on the disk: after the number of the object it follows."""
    return _AFTER.pack(after if after is not None else _NOTHING) + facts if facts else b""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReadFrames:
    """The frames of one file, as far as it can be trusted."""

    frames: list[Frame]
    torn_bytes: int
    """The bytes after the last trusted frame: never acknowledged, or damaged."""
    problem: str | None
    """Why the trusted part ends there; None if the file ends with a whole frame."""
    is_damaged: bool
    """True if a later frame exists after the trusted part. A crash does not cause that, because a
    frame is written only when the previous one is durable."""


def read_frames(data: bytes, spool: SpoolId, *, name: str) -> ReadFrames:
    """Read one file. The caller checks which frame its first frame continues."""
    view = memoryview(data)
    frames: list[Frame] = []
    position = 0
    problem: str | None = None
    last: EntryHeader | None = None
    while position < len(view):
        try:
            frame = parse_frame(view[position:], name=f"{name} at byte {position}")
            _check_order(frame.header, spool, last, name=f"{name} at byte {position}")
        except CorruptObject as error:
            problem = str(error)
            break
        frames.append(frame)
        last = frame.header
        position += last.payload_start + last.payload_bytes
    return ReadFrames(
        frames=frames,
        torn_bytes=len(view) - position,
        problem=problem,
        is_damaged=problem is not None and _has_later(data, position, spool, last),
    )


def _has_later(data: bytes, position: int, spool: SpoolId, last: EntryHeader | None) -> bool:
    """True if somewhere after `position` there is the header of a frame beyond the next one."""
    next_number = last.number + 1 if last is not None else 0
    while (position := data.find(MAGIC, position + 1)) >= 0:
        try:
            header = parse_header(data[position : position + HEADER_BYTES], key="")
        except CorruptObject:
            continue
        is_ours = SpoolId(header.lane, header.claim, header.writer) == spool
        if is_ours and header.number > next_number:
            return True
    return False


def parse_frame(data: memoryview, *, name: str) -> Frame:
    """Return the frame at the beginning of `data`. Its place in the chain is not checked."""
    header = parse_header(data[:HEADER_BYTES], key=name)
    facts = facts_of(header, data, key=name)
    payload = data[header.payload_start : header.payload_start + header.payload_bytes]
    check_payload(header, payload, key=name)
    if not facts:
        return Frame(header, None, facts, payload)
    if len(facts) < _AFTER.size:
        raise CorruptObject(f"{name}: a frame has only {len(facts)} bytes of facts")
    (after,) = _AFTER.unpack_from(facts)
    return Frame(header, LaneNumber(after) if after else None, facts[_AFTER.size :], payload)


def _check_order(
    header: EntryHeader, spool: SpoolId, last: EntryHeader | None, *, name: str
) -> None:
    if SpoolId(header.lane, header.claim, header.writer) != spool:
        raise CorruptObject(
            f"{name}: this frame belongs to lane {header.lane}, claim {header.claim}, writer"
            f" {header.writer.hex()}, but the file to lane {spool.lane}, claim {spool.claim},"
            f" writer {spool.writer.hex()}"
        )
    if last is not None and (header.number != last.number + 1 or header.previous != last.hash):
        raise CorruptObject(f"{name}: frame {header.number} does not follow frame {last.number}")
