"""The room that a directory store keeps for objects without which no broker could serve."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.async_tests import in_event_loop
from tests.support.disks import fill, small_disk

from holdfast.errors import StoreUnavailable
from holdfast.store.directory import DirectoryStore
from holdfast.store.interface import Buffers, CreateAnswer
from holdfast.store.keys import RESERVE_FILE
from holdfast.store.read_only import DirectoryAsItIs
from holdfast.store.reserve import GIVEN_BYTES, RESERVE_BYTES

ROOMY_MIB = 16
TIGHT_MIB = 6
SMALL = [b"x" * 1000]
OBJECTS_MAX = 10_000


def is_claim(key: str, body: Buffers) -> bool:
    return key.startswith("claims/")


def reserve_bytes(store: Path) -> int:
    return (store / RESERVE_FILE).stat().st_blocks * 512


# On tmpfs: what is given is there at once, so that blocks can be counted.
@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", mib=ROOMY_MIB) as disk:
        yield disk


@pytest.fixture
def tight(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", mib=TIGHT_MIB) as disk:
        yield disk


async def open_with_reserve(path: Path) -> DirectoryStore:
    store = DirectoryStore(str(path))
    store.keep_reserve(is_claim)
    await store.fill_reserve()
    return store


@in_event_loop
async def test_what_is_needed_finds_room_on_a_full_disk_and_nothing_else_does(small: Path):
    store = await open_with_reserve(small / "store")
    assert reserve_bytes(small / "store") == RESERVE_BYTES
    await store.create("records/0", SMALL)
    fill(small / "junk")
    with pytest.raises(StoreUnavailable, match="No space left"):
        await store.create("records/1", SMALL)
    assert reserve_bytes(small / "store") == RESERVE_BYTES
    assert await store.create("claims/0", SMALL) is CreateAnswer.CREATED
    assert await store.create("claims/0", SMALL) is CreateAnswer.EXISTS
    assert await store.read("claims/0") == SMALL[0]
    assert reserve_bytes(small / "store") == RESERVE_BYTES - GIVEN_BYTES
    await store.close()


@in_event_loop
async def test_the_reserve_lasts_for_hundreds_of_objects_and_its_end_is_an_ordinary_full_disk(
    small: Path,
):
    store = await open_with_reserve(small / "store")
    fill(small / "junk")
    created = 0
    with pytest.raises(StoreUnavailable, match="No space left"):
        for number in range(OBJECTS_MAX):
            await store.create(f"claims/{number}", SMALL)
            fill(small / "junk")  # what was given and not used is gone, as with a busy neighbour
            created += 1
    assert created > RESERVE_BYTES // GIVEN_BYTES // 2
    assert reserve_bytes(small / "store") == 0
    (small / "junk").unlink()
    assert await store.create("records/0", SMALL) is CreateAnswer.CREATED
    await store.fill_reserve()
    assert reserve_bytes(small / "store") == RESERVE_BYTES
    await store.close()


@in_event_loop
async def test_a_store_that_is_opened_again_uses_the_reserve_that_is_there(small: Path):
    await (await open_with_reserve(small / "store")).close()
    fill(small / "junk")
    for restart in range(3):
        store = await open_with_reserve(small / "store")
        assert await store.create(f"claims/{restart}", SMALL) is CreateAnswer.CREATED
        fill(small / "junk")
        await store.close()
    assert reserve_bytes(small / "store") == RESERVE_BYTES - 3 * GIVEN_BYTES


@in_event_loop
async def test_the_last_room_of_a_disk_is_left_to_records(tight: Path):
    store = await open_with_reserve(tight / "store")
    assert reserve_bytes(tight / "store") == 0
    assert await store.create("records/0", [bytes(4 << 20)]) is CreateAnswer.CREATED
    fill(tight / "junk")
    with pytest.raises(StoreUnavailable, match="No space left"):
        await store.create("claims/0", SMALL)
    await store.close()


@in_event_loop
async def test_a_copy_of_the_file_without_its_blocks_gets_them(small: Path):
    (small / "store").mkdir()
    with (small / "store" / RESERVE_FILE).open("wb") as copied:
        copied.truncate(RESERVE_BYTES)
    assert reserve_bytes(small / "store") == 0
    store = await open_with_reserve(small / "store")
    assert reserve_bytes(small / "store") == RESERVE_BYTES
    await store.close()


@in_event_loop
async def test_the_reserve_is_no_object(tmp_path: Path):
    store = await open_with_reserve(tmp_path)
    assert (tmp_path / RESERVE_FILE).exists()
    await store.create("records/0", SMALL)
    for reader in (store, DirectoryAsItIs(str(tmp_path))):
        assert [entry.key for entry in await reader.list("")] == ["records/0"]
        assert await reader.list(".holdfast") == []
        await reader.close()


@in_event_loop
async def test_a_store_that_nobody_serves_has_no_reserve(tmp_path: Path):
    store = DirectoryStore(str(tmp_path))
    await store.fill_reserve()
    await store.create("claims/0", SMALL)
    assert not (tmp_path / RESERVE_FILE).exists()
    await store.close()


@in_event_loop
async def test_a_reserve_that_cannot_be_made_is_no_error(tmp_path: Path):
    (tmp_path / RESERVE_FILE).mkdir()
    store = await open_with_reserve(tmp_path)
    assert await store.create("claims/0", SMALL) is CreateAnswer.CREATED
    await store.close()
