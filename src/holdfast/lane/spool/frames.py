"""The frames of a spool file: objects of the lane's own format, one after the other. Pure.

Owns how far a spool is believed: each frame must be whole, of the same lane, claim and writer, and
continue the chain of the one before. What comes after the first that does not is not believed.
A frame says which lane object it follows, if that was not in the store yet when it was written.
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
    """Whose spool it is: a claim of a lane, by one writer."""

    lane: LaneId
    claim: LaneNumber
    writer: WriterId


class Frame(NamedTuple):
    """What was made durable by one write to the disk."""

    header: EntryHeader
    after: LaneNumber | None
    """The lane object without which nothing of it was ever acknowledged."""
    facts: bytes
    payload: memoryview


_AFTER = struct.Struct(">Q")
_NOTHING = 0
"""No put of a frame's owner has the number 0: its claim has a lower one than all of them."""


def frame_facts(facts: bytes, after: LaneNumber | None) -> bytes:
    """The facts of a frame as they are on the disk: behind what it follows."""
    return _AFTER.pack(after if after is not None else _NOTHING) + facts if facts else b""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReadFrames:
    """The frames of one file, as far as they can be believed."""

    frames: list[Frame]
    valid_bytes: int
    torn_bytes: int
    """What is behind the last frame that is believed: never acknowledged, or destroyed."""
    problem: str | None
    """Why the file ends there; None where it ends with a whole frame."""
    is_damaged: bool
    """A later frame is behind what is not believed. A crash does not leave that: a frame is written
    only when the one before it is durable."""


def read_frames(data: bytes, spool: SpoolId, *, name: str) -> ReadFrames:
    """Read one file; what its first frame continues is for the caller to look at."""
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
        valid_bytes=position,
        torn_bytes=len(view) - position,
        problem=problem,
        is_damaged=problem is not None and _has_later(data, position, spool, last),
    )


def _has_later(data: bytes, position: int, spool: SpoolId, last: EntryHeader | None) -> bool:
    """Whether the header of a frame after the next one is somewhere behind a position."""
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
    """The frame at the beginning of some bytes, checked by itself."""
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
