"""`holdfast inspect` as a person or a script calls it: what it shows; that it changes nothing."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.support.async_tests import in_event_loop
from tests.unit.cli.stores import StoreBuilder, build_store
from tests.unit.spark.stores import made
from tests.unit.spark.transactions import goes_on, transactions

from holdfast.cli.inspect import progress_lines
from holdfast.cli.main import cli
from holdfast.environment import SeededEnvironment, SystemEnvironment, VirtualClock
from holdfast.errors import CallError, ConfigurationError, HoldfastError
from holdfast.identifiers import LaneId, LaneNumber
from holdfast.inspect.findings import Findings
from holdfast.lane.floor import raise_floor
from holdfast.store.directory import DirectoryStore
from holdfast.store.read_only import open_read_only


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_store(tmp_path_factory.mktemp("built") / "store")


def inspect(folder: Path | str, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["inspect", "--store", str(folder), *arguments])


def survey(folder: Path, *arguments: str) -> dict:
    result = inspect(folder, "--json", *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["survey"]


def contents(folder: Path) -> dict[str, bytes | None]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() if p.is_file() else None
        for p in folder.rglob("*")
    }


def test_lanes_show_floor_snapshot_next_number_and_owner(built: Path):
    lanes = {lane["lane"]: lane for lane in survey(built)["lanes"]}
    assert sorted(lanes) == [0, 1, 2]
    assert (lanes[1]["floor"], lanes[1]["snapshot_number"], lanes[1]["next_number"]) == (10, 13, 17)
    assert lanes[1]["leader_epoch"] == 2
    assert lanes[1]["objects"] == len(list((built / "lanes/0001").iterdir()))
    assert lanes[1]["bytes"] == sum(p.stat().st_size for p in (built / "lanes/0001").iterdir())


def test_hand_offs_say_who_and_whether_it_was_released_or_taken(built: Path):
    lanes = {lane["lane"]: lane for lane in survey(built)["lanes"]}
    control = [(c["broker_id"], c["leader_epoch"], c["how"]) for c in lanes[0]["claims"]]
    assert control == [(0, 0, "first"), (1, 1, "taken"), (2, 2, "released")]
    # The object before claim 7 is below the floor and deleted; the claims themselves are kept.
    data = [(c["number"], c["leader_epoch"], c["how"]) for c in lanes[1]["claims"]]
    assert data == [(0, 0, "first"), (7, 1, "unknown"), (15, 2, "released")]
    assert all(c["address"] == "127.0.0.1:9092" for c in lanes[1]["claims"])


def test_claims_can_be_limited_to_the_newest(built: Path):
    lanes = survey(built, "--claims", "1")["lanes"]
    assert [claim["broker_id"] for lane in lanes for claim in lane["claims"]] == [2, 2, 2]


def test_a_store_with_transactions_is_whole_and_shows_how_far_it_is_stable(tmp_path: Path):
    made(tmp_path, transactions, lambda b: b.rewrite(), goes_on)
    (topic,) = survey(tmp_path, "--verify")["topics"]
    (partition,) = topic["partitions"]
    assert (partition["last_stable_offset"], partition["high_watermark"]) == (12, 14)


def test_partitions_show_offsets_segments_and_bytes(built: Path):
    topics = {topic["name"]: topic for topic in survey(built)["topics"]}
    first, second = topics["orders"]["partitions"]
    assert (first["log_start_offset"], first["high_watermark"]) == (5, 73)
    assert (second["log_start_offset"], second["high_watermark"]) == (0, 78)
    assert first["segments"] == 3
    assert first["bytes"] > 4_000
    assert {first["lane"], second["lane"]} == {1, 2}
    assert topics["orders"]["configs"] == {"retention.ms": "-1"}
    assert [p["high_watermark"] for p in topics["payments"]["partitions"]] == [0, 2, 0]


def test_entries_show_the_last_objects_of_a_lane(built: Path):
    (lane,) = survey(built, "--lane", "1", "--entries", "3")["lanes"]
    assert [(e["number"], e["kind"], e["facts"]) for e in lane["entries"]] == [
        (14, "release", 0),
        (15, "claim", 0),
        (16, "data", 1),
    ]
    assert lane["entries"][-1]["payload_bytes"] > 61


def test_one_lane_shows_only_the_partitions_in_it(built: Path):
    seen = survey(built, "--lane", "2")
    assert [lane["lane"] for lane in seen["lanes"]] == [2]
    assert {p["lane"] for topic in seen["topics"] for p in topic["partitions"]} == {2}


def test_the_tables_are_plain_text_in_a_pipe(built: Path):
    result = inspect(built, "--entries", "1", "--verify")
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    for word in ("LANES", "HAND-OFFS", "LANE OBJECTS", "TOPICS", "orders", "no damage found"):
        assert word in result.stdout


def test_a_deleted_topic_is_shown_until_its_lanes_have_dropped_it(tmp_path: Path):
    async def build() -> None:
        builder = StoreBuilder(tmp_path)
        await builder.start()
        await builder.topic("gone", 1)
        await builder.append("gone", 0, 3)
        await builder.delete_topic("gone")
        await builder.stop(release=True)
        await builder.store.close()

    asyncio.run(build())
    (topic,) = survey(tmp_path, "--verify")["topics"]
    assert (topic["name"], topic["deleted"]) == ("gone", True)


def test_nothing_is_written_deleted_or_tidied_up(built: Path, tmp_path: Path):
    folder = Path(shutil.copytree(built, tmp_path / "store"))
    left_behind = folder / ".holdfast-tmp"
    left_behind.mkdir()
    (left_behind / "1-2-3").write_bytes(b"of a process that is gone")
    before = contents(folder)
    assert inspect(folder, "--verify", "--entries", "5").exit_code == 0
    assert contents(folder) == before


def test_a_store_that_this_user_may_only_read_can_be_inspected(built: Path, tmp_path: Path):
    folder = Path(shutil.copytree(built, tmp_path / "store"))
    everything = [folder, *folder.rglob("*")]
    for path in everything:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert inspect(folder, "--verify").exit_code == 0
    finally:
        for path in everything:
            path.chmod(0o755 if path.is_dir() else 0o644)


@in_event_loop
async def test_a_read_only_store_refuses_every_change(built: Path):
    environment = SystemEnvironment()
    store = open_read_only(f"file://{built}", environment=environment)
    key = (await store.list("lanes/"))[0].key
    for change in (store.create("x", [b"y"]), store.delete([key])):
        with pytest.raises(CallError, match="reading only"):
            await change
    assert await store.size(key) is not None
    await store.close()


def test_a_directory_that_is_not_there_is_named_and_not_made(tmp_path: Path):
    result = inspect(tmp_path / "nowhere")
    assert isinstance(result.exception, ConfigurationError)
    assert "nowhere" in str(result.exception)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("store", "said"), [("memory://", "in memory"), ("s3a://bucket", "did you mean s3")]
)
def test_a_store_that_cannot_be_opened_says_why(store: str, said: str):
    result = inspect(store)
    assert isinstance(result.exception, HoldfastError)
    assert said in str(result.exception)


def test_a_directory_without_a_cluster_is_not_a_store(tmp_path: Path):
    result = inspect(tmp_path)
    assert isinstance(result.exception, ConfigurationError)
    assert "not a Holdfast store" in str(result.exception)


def test_a_lane_that_does_not_exist_is_refused_with_those_that_do(built: Path):
    result = inspect(built, "--lane", "9")
    assert isinstance(result.exception, ConfigurationError)
    assert "lanes 0 to 2" in str(result.exception)


@pytest.mark.parametrize("arguments", [(), ("--verify",), ("--verify", "--json")])
def test_a_harmed_object_is_named_with_exit_code_2(
    built: Path, tmp_path: Path, arguments: tuple[str, ...]
):
    folder = Path(shutil.copytree(built, tmp_path / "store"))
    key = "lanes/0001/00000000000000000016"
    body = bytearray((folder / key).read_bytes())
    body[20] ^= 1
    (folder / key).write_bytes(body)
    result = inspect(folder, *arguments)
    assert result.exit_code == 2
    assert key in result.output
    assert "header's checksum" in result.output


@pytest.mark.parametrize("arguments", [(), ("--verify",)])
def test_a_harmed_control_lane_is_named_and_the_rest_still_verified(
    built: Path, tmp_path: Path, arguments: tuple[str, ...]
):
    folder = Path(shutil.copytree(built, tmp_path / "store"))
    key = "lanes/0000/00000000000000000008"
    (folder / key).write_bytes(b"")
    result = inspect(folder, *arguments)
    assert result.exit_code == 2
    assert key in result.output
    assert ("verified" in result.output) == bool(arguments)


def test_long_work_says_how_far_it_is_but_not_all_the_time(capsys: pytest.CaptureFixture[str]):
    clock = VirtualClock()
    findings = Findings(progress_lines(SeededEnvironment(seed=1, clock=clock)))
    findings.bytes_expected = 4096
    for seconds in range(12):
        clock.seconds = seconds
        findings.read(256)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "verified 1.5 KiB in 6 objects (38%), 0 problems",
        "verified 2.8 KiB in 11 objects (69%), 0 problems",
    ]


def test_a_floor_above_all_objects_is_harm(built: Path, tmp_path: Path):
    folder = Path(shutil.copytree(built, tmp_path / "store"))

    async def lift() -> None:
        store = DirectoryStore(str(folder), sync=False)
        await raise_floor(store, SystemEnvironment(), LaneId(1), LaneNumber(100))
        await store.close()

    asyncio.run(lift())
    result = inspect(folder, "--verify", "--lane", "1")
    assert result.exit_code == 2
    assert "snapshots/0001/" in result.output
