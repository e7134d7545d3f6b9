"""A spool on a real disk: what comes back after a crash, whatever the crash left of the files."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.async_tests import in_event_loop

from holdfast.errors import ConfigurationError
from holdfast.identifiers import LaneId, LaneNumber, WriterId
from holdfast.lane.entry import Buffer
from holdfast.lane.spool.disk import DiskFailed, LocalDisk
from holdfast.lane.spool.frames import SpoolId
from holdfast.lane.spool.spool import Spool, Spooled, part_name, read_spool, spools_on

OURS = SpoolId(LaneId(3), LaneNumber(7), WriterId(b"w" * 16))
THEIRS = SpoolId(LaneId(3), LaneNumber(8), WriterId(b"v" * 16))


class FullDisk(LocalDisk):
    """A disk that takes some part of what it is given, and says that it failed."""

    takes: float | None = None
    """Which part; None while it works."""

    async def append(self, name: str, buffers: Sequence[Buffer]) -> None:
        whole = b"".join(buffers)
        if self.takes is not None:
            await super().append(name, [whole[: int(len(whole) * self.takes)]])
            raise DiskFailed("no space left on device")
        await super().append(name, [whole])


async def write(spool: Spool, *values: bytes) -> None:
    for value in values:
        await spool.write(b"facts of " + value, [value, value], written_ms=1)


async def read_back(folder: Path, spool: SpoolId = OURS) -> Spooled:
    disk = LocalDisk(str(folder))
    found = await read_spool(disk, spool, (await spools_on(disk)).get(spool, []))
    await disk.close()
    return found


def values_of(found: Spooled) -> list[bytes]:
    for frame in found.frames:
        assert frame.facts == b"facts of " + bytes(frame.payload)[: frame.header.payload_bytes // 2]
    return [bytes(frame.payload)[: frame.header.payload_bytes // 2] for frame in found.frames]


@in_event_loop
async def test_what_was_written_comes_back_in_order_over_all_parts(tmp_path: Path):
    disk = LocalDisk(str(tmp_path))
    spool = Spool(disk, OURS)
    await write(spool, b"one", b"two")
    spool.next_part()
    await write(spool, b"three")
    await disk.close()
    found = await read_back(tmp_path)
    assert values_of(found) == [b"one", b"two", b"three"]
    assert found.problems == [] and found.torn_bytes == 0


@in_event_loop
async def test_a_torn_tail_is_cut_and_reported_wherever_it_is_torn(tmp_path: Path):
    disk = LocalDisk(str(tmp_path))
    spool = Spool(disk, OURS)
    await write(spool, b"one")
    path = tmp_path / part_name(OURS, 0)
    first_bytes = path.stat().st_size
    await write(spool, b"two")
    await disk.close()
    whole = path.read_bytes()
    for size in range(first_bytes + 1, len(whole)):
        path.write_bytes(whole[:size])
        found = await read_back(tmp_path)
        assert values_of(found) == [b"one"], size
        assert found.torn_bytes == size - first_bytes
        assert len(found.problems) == 1


@in_event_loop
async def test_a_byte_that_changed_ends_what_is_believed(tmp_path: Path):
    disk = LocalDisk(str(tmp_path))
    spool = Spool(disk, OURS)
    await write(spool, b"one", b"two", b"three")
    await disk.close()
    path = tmp_path / part_name(OURS, 0)
    whole = path.read_bytes()
    frame_bytes = whole.index(b"facts of two") - whole.index(b"facts of one")
    for position in range(frame_bytes, 2 * frame_bytes):
        changed = bytearray(whole)
        changed[position] ^= 0x40
        path.write_bytes(changed)
        assert values_of(await read_back(tmp_path)) == [b"one"], position


@pytest.mark.parametrize("takes", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("before", [[], [b"one"]])
@in_event_loop
async def test_after_writes_that_failed_the_next_goes_on_from_the_last_that_did_not(
    tmp_path: Path, takes: float, before: list[bytes]
):
    disk = FullDisk(str(tmp_path))
    spool = Spool(disk, OURS)
    await write(spool, *before)
    disk.takes = takes
    for _ in range(3):
        with pytest.raises(DiskFailed):
            await write(spool, b"never acknowledged")
    disk.takes = None
    await write(spool, b"two", b"three")
    await disk.close()
    found = await read_back(tmp_path)
    assert values_of(found) == [*before, b"two", b"three"]
    assert len(found.problems) == (3 if takes == 0.5 else 0)


@in_event_loop
async def test_a_frame_that_is_missing_in_the_middle_hides_all_that_come_after(tmp_path: Path):
    disk = LocalDisk(str(tmp_path))
    spool = Spool(disk, OURS)
    for value in (b"one", b"two", b"three"):
        await write(spool, value)
        spool.next_part()
    await disk.close()
    (tmp_path / part_name(OURS, 1)).unlink()
    found = await read_back(tmp_path)
    assert values_of(found) == [b"one"]
    assert "is missing: this and all later frames" in found.problems[0]


@in_event_loop
async def test_parts_that_were_flushed_are_dropped_and_the_rest_is_read_from_there(tmp_path: Path):
    disk = LocalDisk(str(tmp_path))
    spool = Spool(disk, OURS)
    await write(spool, b"one", b"two")
    flushed = spool.next_part()
    await write(spool, b"three")
    await spool.drop(flushed)
    assert spool.bytes == (tmp_path / part_name(OURS, 1)).stat().st_size
    await disk.close()
    assert values_of(await read_back(tmp_path)) == [b"three"]


@in_event_loop
async def test_the_spools_of_other_claims_and_other_files_are_told_apart(tmp_path: Path):
    disk = LocalDisk(str(tmp_path))
    await write(Spool(disk, OURS), b"ours")
    await write(Spool(disk, THEIRS), b"theirs")
    (tmp_path / "README").write_text("not a spool")
    assert set(await spools_on(disk)) == {OURS, THEIRS}
    theirs = (tmp_path / part_name(THEIRS, 0)).read_bytes()
    (tmp_path / part_name(OURS, 1)).write_bytes(theirs)
    await disk.close()
    found = await read_back(tmp_path)
    assert values_of(found) == [b"ours"]
    assert "this frame belongs to lane 3, claim 8" in found.problems[0]


def test_a_folder_that_cannot_be_used_is_named_with_the_remedy(tmp_path: Path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ConfigurationError, match=r"spool directory .*file.*name a directory"):
        LocalDisk(str(blocked))


@in_event_loop
async def test_damage_before_a_durable_frame_is_told_from_a_torn_tail(tmp_path: Path):
    disk = LocalDisk(str(tmp_path))
    spool = Spool(disk, OURS)
    path = tmp_path / part_name(OURS, 0)
    ends: list[int] = []
    for value in (b"one", b"two", b"three"):
        await write(spool, value)
        ends.append(path.stat().st_size)
    await disk.close()
    whole = path.read_bytes()
    for position in range(len(whole)):
        harmed = bytearray(whole)
        harmed[position] ^= 0x40
        path.write_bytes(harmed)
        found = await read_back(tmp_path)
        believed = sum(end <= position for end in ends)
        assert values_of(found) == [b"one", b"two", b"three"][:believed], position
        assert found.is_complete == (believed == 2), position
