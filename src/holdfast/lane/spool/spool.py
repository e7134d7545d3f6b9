"""The spool of one claim: frames on a disk, in files (parts) that are deleted when flushed.

Owns the names of the files and the order of the frames. A part in which a write failed is never
written to again: the next part continues from the last durable frame. Must never delete a part with
a frame that is not in the store, nor the last part: without it, an empty spool would look like a
disk that was replaced.
"""

import asyncio
import dataclasses
import re
from collections.abc import Sequence

from holdfast.errors import CorruptObject
from holdfast.identifiers import LaneId, LaneNumber, WriterId
from holdfast.lane.entry import CHAIN_START, Buffer, EntryHeader, EntryKind, seal
from holdfast.lane.spool.disk import Disk, DiskFailed
from holdfast.lane.spool.frames import Frame, SpoolId, frame_facts, read_frames

NAME = re.compile(r"(\d+)-(\d{20})-([0-9a-f]{32})-(\d{8})\.spool")


class Spool:
    """The spool of a lane's owner, for writing."""

    def __init__(self, disk: Disk, spool: SpoolId) -> None:
        self.spool = spool
        self.bytes = 0
        """The bytes in parts that are not deleted yet."""
        self.writes = 0
        """The number of durable writes; each is one fsync."""
        self._disk = disk
        self._last: EntryHeader | None = None
        self._part = 0
        self._parts: dict[str, int] = {}
        self._writing = asyncio.Lock()

    async def open(self) -> None:
        """Write an empty frame, so that the spool exists on the disk."""
        await self.write(b"", (), written_ms=0)

    async def write(
        self,
        facts: bytes,
        payload: Sequence[Buffer],
        *,
        written_ms: int,
        after: LaneNumber | None = None,
    ) -> EntryHeader:
        """Make a frame durable. Raises DiskFailed, and then the frame counts as never written.

        `after`: the number of the lane object that the frame follows, if it is not durable yet.
        """
        async with self._writing:
            return await self._write(frame_facts(facts, after), payload, written_ms)

    async def _write(self, facts: bytes, payload: Sequence[Buffer], written_ms: int) -> EntryHeader:
        last = self._last
        entry = seal(
            kind=EntryKind.DATA,
            lane=self.spool.lane,
            number=LaneNumber(last.number + 1 if last is not None else 0),
            claim=self.spool.claim,
            writer=self.spool.writer,
            previous=last.hash if last is not None else CHAIN_START,
            facts=facts,
            payload=payload,
            written_ms=written_ms,
        )
        name = part_name(self.spool, self._part)
        size = sum(len(buffer) for buffer in entry.body)
        self._parts[name] = self._parts.get(name, 0) + size
        self.bytes += size
        try:
            await self._disk.append(name, entry.body)
        except BaseException:
            # Cancelled or failed: the file may now end with half a frame, or with a whole one that
            # was never reported. Nothing may follow it in this file.
            self._part += 1
            raise
        self._last = entry.header
        self.writes += 1
        return entry.header

    def next_part(self) -> list[str]:
        """Start a new file for later frames, and return the names of the complete parts."""
        complete = list(self._parts)
        self._part += 1
        return complete

    async def drop(self, parts: Sequence[str]) -> None:
        """Delete parts whose frames are all in the store."""
        try:
            if part_name(self.spool, self._part) not in self._parts:
                await self.open()
            await self._disk.delete(parts)
        except DiskFailed:
            return  # a replay skips their offsets, and the next drop deletes them
        for part in parts:
            self.bytes -= self._parts.pop(part, 0)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Spooled:
    """The frames of one claim's spool, as read from a disk."""

    frames: list[Frame]
    torn_bytes: int
    problems: list[str]
    """Why parts end early. The caller must report each one."""
    is_complete: bool
    """True if no frame is missing between two others."""


async def spools_on(disk: Disk) -> dict[SpoolId, list[str]]:
    """Return the spools on a disk, with their parts in order. Other files are ignored."""
    found: dict[SpoolId, list[str]] = {}
    for name in sorted(await disk.names()):
        matched = NAME.fullmatch(name)
        if matched is not None:
            lane, claim, writer, _ = matched.groups()
            spool = SpoolId(
                LaneId(int(lane)), LaneNumber(int(claim)), WriterId(bytes.fromhex(writer))
            )
            found.setdefault(spool, []).append(name)
    return found


async def read_spool(disk: Disk, spool: SpoolId, parts: Sequence[str]) -> Spooled:
    """Return the frames of a spool, as far as they can be trusted.

    A part may end early because the machine crashed. It may also end with frames whose write was
    reported as failed: then the next part continues from the last frame that its writer counted,
    and later frames of the earlier part were never acknowledged. If a part continues no frame that
    is here, a frame before it is missing, and neither it nor any later part counts.
    """
    frames: list[Frame] = []
    problems: list[str] = []
    torn_bytes = 0
    is_complete = True
    for part in parts:
        read = read_frames(await disk.read(part), spool, name=part)
        torn_bytes += read.torn_bytes
        if read.problem is not None:
            problems.append(read.problem)
        if read.is_damaged:
            problems.append(
                f"{part}: the file is damaged before its end: durable frames after the damage are"
                " ignored"
            )
            is_complete = False
        if not read.frames:
            continue
        kept = _continued(frames, read.frames[0].header)
        if kept is None:
            number = read.frames[0].header.number
            problems.append(
                f"{part}: the frame before frame {number} is missing: this and all later frames"
                " are ignored"
            )
            is_complete = False
            break
        frames[kept:] = read.frames
    return Spooled(frames=frames, torn_bytes=torn_bytes, problems=problems, is_complete=is_complete)


def _continued(frames: Sequence[Frame], first: EntryHeader) -> int | None:
    """Return how many of the frames come before a part's first frame; None if a frame is missing.

    Frames after those are the ones that the part replaces.
    """
    if not frames or (first.number == 0 and first.previous == CHAIN_START):
        return 0
    for count in range(len(frames), 0, -1):
        last = frames[count - 1].header
        if last.number + 1 == first.number and last.hash == first.previous:
            return count
    return None


def part_name(spool: SpoolId, part: int) -> str:
    if len(spool.writer) != 16:
        raise CorruptObject(
            f"lane {spool.lane}: a writer id has {len(spool.writer)} bytes; it must have 16"
        )
    return f"{spool.lane}-{spool.claim:020d}-{spool.writer.hex()}-{part:08d}.spool"
