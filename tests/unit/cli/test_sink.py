"""`holdfast sink` around its member: what is told before it runs, signals, and the exit code."""

import asyncio
import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.peers.holdfast import HoldfastBroker
from tests.peers.process import free_port, wait_until

from holdfast.client.admin import NewTopic, create_topics
from holdfast.client.cluster import Cluster
from holdfast.client.groups import commit_offsets, describe_group
from holdfast.environment import SystemEnvironment
from holdfast.landing.chain import Chain, Landed
from holdfast.landing.formats.jsonl import JsonLines
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.store.address import open_store

HOLDFAST = Path(sys.executable).parent / "holdfast"
ENVIRONMENT = SystemEnvironment()
RECORDS = 10
PARTITIONS = 3
CHILD = """
import asyncio, sys
from pathlib import Path
from holdfast.cli.run import exit_code
from holdfast.cli.sink import run_watched
from holdfast.errors import RetryError
from holdfast.sink.config_file import read_sink
from tests.unit.sink.statuses import status

async def work(stop, report):
    report(status())
    match sys.argv[2]:
        case "waits":
            await stop.event.wait()
        case "hangs":
            await stop.event.wait()
            await asyncio.sleep(600)
        case "fails":
            raise RetryError("the group is gone")
        case "ends badly":
            return status(store_problem="403")
    return status(state="stopping")

settings = read_sink(Path(sys.argv[1]))
sys.exit(exit_code(lambda: asyncio.run(run_watched(settings, work))))
"""


def sink(*arguments: str, cwd: Path) -> tuple[int, str, str]:
    done = subprocess.run(
        [str(HOLDFAST), "sink", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def written(folder: Path, bootstrap: str, topic: str, more: str = "") -> Path:
    path = folder / "sink.toml"
    path.write_text(
        f'[source]\nbootstrap.servers = "{bootstrap}"\ngroup.id = "{topic}-group"\n'
        f'topics = ["{topic}"]\n[output]\nto = "lake"\n{more}'
    )
    return path


@pytest.fixture
def topic(holdfast_broker: HoldfastBroker, request: pytest.FixtureRequest) -> str:
    """Three partitions with ten records each."""
    name = "sink." + request.node.name[:80].replace("[", ".").rstrip("]")
    asked(holdfast_broker, lambda cluster: create_topics(cluster, [NewTopic(name, PARTITIONS)]))
    producer = Producer({"bootstrap.servers": holdfast_broker.bootstrap})
    for i in range(PARTITIONS * RECORDS):
        producer.produce(name, value=b"%d" % i, partition=i % PARTITIONS)
    assert producer.flush(30) == 0
    return name


def asked(broker: HoldfastBroker, ask: Callable[[Cluster], Any]) -> Any:
    async def main() -> Any:
        async with Cluster(broker.bootstrap, environment=ENVIRONMENT) as cluster:
            return await ask(cluster)

    return asyncio.run(main())


def land(lake: Path, topic: str, partition: int, end_offset: int) -> None:
    async def main() -> None:
        store = open_store(str(lake), environment=ENVIRONMENT)
        chain = Chain(store, topic, partition, format=JsonLines(), environment=ENVIRONMENT)
        landed = await chain.land([], start_offset=0, end_offset=end_offset)
        assert isinstance(landed, Landed)
        await store.close()

    asyncio.run(main())


def test_a_dry_run_says_where_each_partition_begins_and_by_what(
    holdfast_broker: HoldfastBroker, topic: str, tmp_path: Path
):
    land(tmp_path / "lake", topic, 0, 4)
    offsets = {TopicPartition(topic, 0): 2, TopicPartition(topic, 1): 7}
    asked(holdfast_broker, lambda cluster: commit_offsets(cluster, f"{topic}-group", offsets))
    before = sorted(path.name for path in (tmp_path / "lake").iterdir())
    written(tmp_path, holdfast_broker.bootstrap, topic)
    code, said, complaint = sink("sink.toml", "--dry-run", cwd=tmp_path)
    assert code == 0, complaint
    rows = [line.split() for line in said.splitlines() if line.startswith(f"{topic} ")]
    assert rows == [
        [topic, "0", "4", "chain", "0..10", "6"],
        [topic, "1", "7", "committed", "0..10", "3"],
        [topic, "2", "0", "startingOffsets", "0..10", "10"],
    ]
    for part in (holdfast_broker.bootstrap, f"{topic}-group", "lake, writable", "jsonl (value)"):
        assert part in said
    assert said.endswith("all checks passed; nothing was started\n")
    assert sorted(path.name for path in (tmp_path / "lake").iterdir()) == before
    group = asked(holdfast_broker, lambda cluster: describe_group(cluster, f"{topic}-group"))
    assert group.members == []


def test_a_dry_run_can_be_read_by_a_program(
    holdfast_broker: HoldfastBroker, topic: str, tmp_path: Path
):
    written(tmp_path, holdfast_broker.bootstrap, topic)
    code, said, complaint = sink("sink.toml", "--dry-run", "--json", cwd=tmp_path)
    assert code == 0, complaint
    (found,) = [json.loads(line) for line in said.splitlines()]
    assert (found["event"], found["problems"], found["topics"]) == ("dry_run", [], topic)
    assert found["partitions"][2] == {
        "topic": topic,
        "partition": 2,
        "begins": 0,
        "by": "startingOffsets",
        "log_start": 0,
        "log_end": RECORDS,
        "lag": RECORDS,
    }


def test_a_run_can_be_read_by_a_program(
    holdfast_broker: HoldfastBroker, topic: str, tmp_path: Path
):
    written(tmp_path, holdfast_broker.bootstrap, topic)
    code, said, complaint = sink("sink.toml", "--once", "--json", cwd=tmp_path)
    assert code == 0, complaint
    events = [json.loads(line) for line in said.splitlines()]
    assert {event["event"] for event in events[:-1]} == {"status"}
    last = events[-1]
    assert (last["event"], last["ended"], last["problems"]) == ("summary", "complete", [])
    assert last["records_landed"] == PARTITIONS * RECORDS
    assert last["output"] == str(tmp_path / "lake")
    assert "hint: " in complaint, "what is for people is on the other stream"


def test_the_command_that_looks_at_the_result_can_be_pasted_into_a_shell(
    holdfast_broker: HoldfastBroker, topic: str, tmp_path: Path
):
    written(tmp_path, holdfast_broker.bootstrap, topic)
    option = ("--option", "output.to=lake?a=1&region='x y'")
    code, said, complaint = sink("sink.toml", "--once", *option, cwd=tmp_path)
    assert code == 0, complaint
    (line,) = [line for line in said.splitlines() if line.startswith("look ")]
    pasted = subprocess.run(
        ["bash", "-c", line.removeprefix("look").strip().replace("holdfast", str(HOLDFAST), 1)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert pasted.returncode == 0, pasted.stderr
    assert f"{PARTITIONS} objects" in pasted.stdout


def test_an_error_of_a_run_in_json_is_a_line_on_the_other_stream(tmp_path: Path):
    written(tmp_path, f"127.0.0.1:{free_port()}", "orders")
    code, said, complaint = sink("sink.toml", "--dry-run", "--json", cwd=tmp_path)
    assert (code, said) == (4, "")
    assert "holdfast: no broker can be reached" in complaint


def test_a_reset_to_the_latest_begins_at_the_end(
    holdfast_broker: HoldfastBroker, topic: str, tmp_path: Path
):
    written(tmp_path, holdfast_broker.bootstrap, topic)
    option = ("--option", "source.auto.offset.reset=latest")
    code, said, complaint = sink("sink.toml", "--dry-run", *option, cwd=tmp_path)
    assert code == 0, complaint
    assert "a new group" in said
    rows = [line.split() for line in said.splitlines() if line.startswith(f"{topic} ")]
    assert {(row[2], row[5]) for row in rows} == {("10", "0")}


def test_a_chain_that_is_longer_than_the_log_is_for_a_person_to_look_at(
    holdfast_broker: HoldfastBroker, topic: str, tmp_path: Path
):
    land(tmp_path / "lake", topic, 1, 50)
    written(tmp_path, holdfast_broker.bootstrap, topic)
    code, said, complaint = sink("sink.toml", "--dry-run", cwd=tmp_path)
    assert code == 3
    assert f"{topic}-1: by its chain the sink would continue at offset 50, but the log" in complaint
    assert "all checks passed" not in said


def test_an_error_is_one_line_with_a_remedy(
    holdfast_broker: HoldfastBroker, topic: str, tmp_path: Path
):
    written(tmp_path, holdfast_broker.bootstrap, topic)
    (tmp_path / "taken").write_text("a file")
    nobody = f"127.0.0.1:{free_port()}"
    cases = [
        (["sinks.toml"], 1, "did you mean sink.toml?"),
        (["sink.toml", "--option", "source.group.idd=x"], 1, "--option source.group.idd: "),
        (["sink.toml", "--dry-run", "--option", f"source.topics={topic}x"], 1, "did you mean"),
        (["sink.toml", "--dry-run", "--option", "output.to=taken"], 1, "taken"),
        (["sink.toml", "--dry-run", "--option", f"source.bootstrap.servers={nobody}"], 4, nobody),
        (["sink.toml", "--members", "0"], 2, "--members"),
    ]
    for arguments, code, part in cases:
        found, _, complaint = sink(*arguments, cwd=tmp_path)
        assert found == code, (arguments, complaint)
        assert part in complaint
        assert "Traceback" not in complaint


def child(folder: Path, how: str, more: str = "") -> subprocess.Popen[str]:
    path = written(folder, "127.0.0.1:1", "orders", more)
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path), how],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def first_line(running: subprocess.Popen[str]) -> str:
    assert running.stderr is not None
    return running.stderr.readline()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_ends_it_after_its_work(tmp_path: Path, number: signal.Signals):
    with child(tmp_path, "waits") as running:
        assert first_line(running).startswith("stable, 1 partition; ")
        running.send_signal(number)
        said, complaint = running.communicate(timeout=60)
    assert running.returncode == 0, complaint
    assert "stopping: open batches are written and committed first" in complaint
    assert "stopped by a signal" in said
    assert "1,080 records in 2 objects" in said
    assert f"holdfast landed {tmp_path / 'lake'}" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_ends_it_at_once(tmp_path: Path, number: signal.Signals):
    with child(tmp_path, "hangs") as running:
        first_line(running)
        running.send_signal(signal.SIGTERM)
        assert first_line(running).startswith("stopping: ")
        running.send_signal(number)
        running.communicate(timeout=60)
    assert running.returncode == -number


@pytest.mark.parametrize(
    ("how", "code", "part"),
    [("ends", 0, ""), ("fails", 4, "holdfast: the group is gone"), ("ends badly", 4, "")],
)
def test_the_exit_code_says_what_to_do(tmp_path: Path, how: str, code: int, part: str):
    with child(tmp_path, how) as running:
        _, complaint = running.communicate(timeout=60)
    assert running.returncode == code, complaint
    assert part in complaint


def test_health_is_served_while_it_runs(tmp_path: Path):
    with child(tmp_path, "waits", '[http]\nlisten = "127.0.0.1:0"\n') as running:
        address = first_line(running).split()[-1]
        first_line(running)

        def is_healthy() -> bool:
            with urllib.request.urlopen(f"{address}/health", timeout=10) as answer:
                return json.load(answer)["healthy"]

        wait_until(is_healthy, seconds_max=60, what="health")
        running.terminate()
        running.communicate(timeout=60)
    assert running.returncode == 0
