"""`holdfast inspect --verify`: each class of bytes of each kind of object, harmed and named."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.transactional import TransactionalProducer
from tests.unit.cli.stores import StoreBuilder, build_store

from holdfast.environment import SystemEnvironment
from holdfast.inspect.findings import Findings, Weight
from holdfast.inspect.verification import Verification
from holdfast.lane.entry import HEADER_BYTES as ENTRY_HEADER_BYTES
from holdfast.lane.entry import parse_header
from holdfast.lane.snapshot import HEADER_BYTES as SNAPSHOT_HEADER_BYTES
from holdfast.log.segment import HEADER_BYTES as SEGMENT_HEADER_BYTES
from holdfast.records.batch import HEADER_BYTES as BATCH_HEADER_BYTES
from holdfast.store.read_only import open_read_only

PLACES_PER_CLASS = 10


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_store(tmp_path_factory.mktemp("built") / "store")


def verify(folder: Path) -> Findings:
    async def run() -> Findings:
        environment = SystemEnvironment()
        store = open_read_only(str(folder), environment=environment)
        findings = Findings()
        await Verification(store, environment, findings).run()
        await store.close()
        return findings

    return asyncio.run(run())


def harmed_keys(folder: Path) -> set[str]:
    return {finding.key for finding in verify(folder).of(Weight.HARM)}


def keys(folder: Path, prefix: str) -> list[str]:
    found = (p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    return sorted(key for key in found if key.startswith(prefix))


def entry_with_payload(folder: Path) -> str:
    for key in keys(folder, "lanes/0001/"):
        if parse_header((folder / key).read_bytes(), key=key).payload_bytes > 200:
            return key
    raise AssertionError("the store has no lane object with records")


def spread(start: int, end: int, count: int = PLACES_PER_CLASS) -> list[int]:
    step = max(1, (end - start) // count)
    return sorted({*range(start, end, step), end - 1})


def entry_places(body: bytes) -> list[int]:
    header = parse_header(body, key="")
    return [
        *spread(0, ENTRY_HEADER_BYTES),
        *spread(ENTRY_HEADER_BYTES, header.payload_start),
        *(spread(header.payload_start, len(body)) if header.payload_bytes else []),
    ]


def snapshot_places(body: bytes) -> list[int]:
    return [*spread(0, SNAPSHOT_HEADER_BYTES), *spread(SNAPSHOT_HEADER_BYTES, len(body))]


def segment_places(body: bytes) -> list[int]:
    """The header, the index of one block, each byte of a batch's header, and some of the rest."""
    data_start = SEGMENT_HEADER_BYTES + 24
    return [
        *spread(0, SEGMENT_HEADER_BYTES),
        *range(SEGMENT_HEADER_BYTES, data_start, 4),
        *range(data_start, data_start + BATCH_HEADER_BYTES),
        *spread(data_start + BATCH_HEADER_BYTES, len(body)),
    ]


def floor_places(body: bytes) -> list[int]:
    return list(range(len(body)))


KINDS: dict[str, tuple[Callable[[Path], str], Callable[[bytes], list[int]]]] = {
    "a claim": (lambda f: keys(f, "lanes/0001/")[-2], entry_places),
    "a claim below the floor": (lambda f: keys(f, "lanes/0001/")[0], entry_places),
    "a release": (lambda f: keys(f, "lanes/0001/")[-3], entry_places),
    "data of a log": (entry_with_payload, entry_places),
    "data of the cluster": (lambda f: keys(f, "lanes/0000/")[1], entry_places),
    "the last object of a lane": (lambda f: keys(f, "lanes/0002/")[-1], entry_places),
    "the newest snapshot": (lambda f: keys(f, "snapshots/0001/")[-1], snapshot_places),
    "an older snapshot": (lambda f: keys(f, "snapshots/0001/")[0], snapshot_places),
    "a snapshot of the cluster": (lambda f: keys(f, "snapshots/0000/")[0], snapshot_places),
    "a segment": (lambda f: keys(f, "topics/")[0], segment_places),
    "a segment amid others": (lambda f: keys(f, "topics/")[1], segment_places),
    "a floor": (lambda f: keys(f, "floors/0001/")[0], floor_places),
}


def test_a_store_as_brokers_leave_it_is_unharmed(built: Path):
    findings = verify(built)
    assert findings.found == []
    assert findings.objects == len(keys(built, "")) - len(keys(built, "floors/"))


@pytest.mark.parametrize("kind", KINDS)
def test_one_flipped_bit_anywhere_is_named(built: Path, kind: str):
    choose, places = KINDS[kind]
    key = choose(built)
    path = built / key
    body = path.read_bytes()
    unnoticed: list[int] = []
    try:
        for place in places(body):
            harmed = bytearray(body)
            harmed[place] ^= 0x10
            path.write_bytes(harmed)
            if key not in harmed_keys(built):
                unnoticed.append(place)
    finally:
        path.write_bytes(body)
    assert unnoticed == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", ["cut short", "longer", "empty"])
def test_another_length_is_named(built: Path, kind: str, change: str):
    key = KINDS[kind][0](built)
    path = built / key
    body = path.read_bytes()
    try:
        path.write_bytes({"cut short": body[:-1], "longer": body + b"\0", "empty": b""}[change])
        assert key in harmed_keys(built)
    finally:
        path.write_bytes(body)


def test_a_missing_lane_object_is_named_and_so_is_only_it(built: Path, tmp_path: Path):
    folder = shutil.copytree(built, tmp_path / "store")
    key = keys(folder, "lanes/0001/")[3]
    (folder / key).unlink()
    assert harmed_keys(folder) == {key}


def test_a_missing_claim_below_the_floor_is_named(built: Path, tmp_path: Path):
    folder = shutil.copytree(built, tmp_path / "store")
    key = keys(folder, "lanes/0002/")[1]
    (folder / key).unlink()
    assert harmed_keys(folder) == {key}


def test_a_missing_segment_is_named(built: Path, tmp_path: Path):
    folder = shutil.copytree(built, tmp_path / "store")
    key = keys(folder, "topics/")[2]
    (folder / key).unlink()
    assert harmed_keys(folder) == {key}


def test_a_missing_floor_leaves_the_numbers_below_it_missing(built: Path, tmp_path: Path):
    folder = shutil.copytree(built, tmp_path / "store")
    (folder / keys(folder, "floors/0001/")[0]).unlink()
    assert "lanes/0001/00000000000000000001" in harmed_keys(folder)


def test_without_snapshots_that_cover_the_floor_the_lane_is_harmed(built: Path, tmp_path: Path):
    folder = shutil.copytree(built, tmp_path / "store")
    for key in keys(folder, "snapshots/0001/"):
        (folder / key).unlink()
    assert harmed_keys(folder) == {"snapshots/0001/"}


@pytest.mark.parametrize("prefix", ["lanes/0001/", "topics/", "snapshots/0001/"])
def test_two_objects_that_changed_places_are_both_named(built: Path, tmp_path: Path, prefix: str):
    folder = shutil.copytree(built, tmp_path / "store")
    first, second = keys(folder, prefix)[-2:]
    one, other = (folder / first).read_bytes(), (folder / second).read_bytes()
    (folder / first).write_bytes(other)
    (folder / second).write_bytes(one)
    assert {first, second} <= harmed_keys(folder)


def test_an_object_of_another_lane_is_named(built: Path, tmp_path: Path):
    folder = shutil.copytree(built, tmp_path / "store")
    key = keys(folder, "lanes/0001/")[-1]
    shutil.copyfile(folder / keys(folder, "lanes/0002/")[-1], folder / key)
    assert harmed_keys(folder) == {key}


def test_an_object_of_another_history_breaks_the_chain(built: Path, tmp_path: Path):
    folder = shutil.copytree(built, tmp_path / "store")
    other = build_store(tmp_path / "other")
    key = keys(folder, "lanes/0001/")[-1]
    shutil.copyfile(other / key, folder / key)
    assert harmed_keys(folder) == {key}


def test_a_snapshot_of_another_history_is_named(built: Path, tmp_path: Path):
    folder = shutil.copytree(built, tmp_path / "store")
    other = build_store(tmp_path / "other")
    key = keys(folder, "snapshots/0001/")[-1]
    shutil.copyfile(other / key, folder / key)
    assert harmed_keys(folder) == {key}


def test_several_harmed_objects_are_all_named(built: Path, tmp_path: Path):
    folder = shutil.copytree(built, tmp_path / "store")
    chosen = {
        keys(folder, "lanes/0001/")[4],
        keys(folder, "lanes/0002/")[3],
        keys(folder, "snapshots/0002/")[0],
        keys(folder, "topics/")[-1],
    }
    for key in chosen:
        path = folder / key
        body = bytearray(path.read_bytes())
        body[-1] ^= 1
        path.write_bytes(body)
    assert harmed_keys(folder) == chosen


def test_what_nothing_names_is_left_over_and_not_harm(built: Path, tmp_path: Path):
    folder = shutil.copytree(built, tmp_path / "store")
    segment = keys(folder, "topics/")[0]
    orphan = segment[:-8] + "00000000"
    shutil.copyfile(folder / segment, folder / orphan)
    below = "lanes/0001/00000000000000000009"
    gone = bytearray((folder / "lanes/0001/00000000000000000007").read_bytes())
    (folder / below).write_bytes(gone)
    (folder / "stranger").write_bytes(b"?")
    findings = verify(folder)
    assert {finding.key for finding in findings.of(Weight.LEFT_OVER)} == {orphan, "stranger"}
    # A claim's bytes at another number are harm: claims below the floor are read too.
    assert {finding.key for finding in findings.of(Weight.HARM)} == {below}


def test_a_store_with_open_transactions_over_many_partitions_is_unharmed(tmp_path: Path):
    async def build() -> None:
        builder = StoreBuilder(tmp_path / "store")
        broker = await builder.start()
        await builder.topic("t", 24)
        for number in range(8):
            producer = TransactionalProducer(broker, f"billing-{number}")
            assert await producer.init() == 0
            for partition in range(24):
                told = await producer.send(partition * (number + 1) % 24, b"value")
                assert told.error_code == 0
        for lane in broker.lanes.values():
            await lane.snapshot_now()
        await builder.stop(release=True)

    asyncio.run(build())
    assert keys(tmp_path / "store", "snapshots/")
    assert verify(tmp_path / "store").found == []
