"""`holdfast topic produce` and `consume` as processes: on Holdfast, and on Apache Kafka."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from tests.peers.holdfast import HoldfastBroker
from tests.peers.process import free_port, wait_until

HOLDFAST = Path(sys.executable).parent / "holdfast"
Done = subprocess.CompletedProcess[bytes]


class Cli:
    """The command against one broker, with a topic of the test's own."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap = bootstrap
        self.name = name

    def arguments(self, *words: str) -> list[str]:
        return [str(HOLDFAST), *words, "--bootstrap", self.bootstrap]

    def run(self, *words: str, given: bytes = b"") -> Done:
        return subprocess.run(
            self.arguments(*words), input=given, capture_output=True, timeout=120, check=False
        )

    def ok(self, *words: str, given: bytes = b"") -> bytes:
        done = self.run(*words, given=given)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.arguments(*words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def create(self, partitions: int = 1) -> str:
        self.ok("topic", "create", self.name, "--partitions", str(partitions))
        return self.name

    def lines(self, *words: str) -> list[str]:
        return self.ok("topic", "consume", self.name, *words).decode().splitlines()


@pytest.fixture(params=["holdfast", pytest.param("kafka", marks=pytest.mark.peer)])
def cli(request: pytest.FixtureRequest) -> Iterator[Cli]:
    broker = request.getfixturevalue(f"{request.param}_broker")
    yield Cli(broker.bootstrap, f"lines-{uuid.uuid4().hex[:12]}")


@pytest.fixture
def own(holdfast_broker: HoldfastBroker) -> Cli:
    return Cli(holdfast_broker.bootstrap, f"lines-{uuid.uuid4().hex[:12]}")


def test_lines_with_keys_and_headers_are_what_a_kafka_consumer_reads(cli: Cli):
    topic = cli.create(3)
    said = cli.ok(
        *("topic", "produce", topic, "--key-separator", ":", "--header", "from=cli"),
        *("--compression", "lz4"),
        given=b"a:1\r\nb:2\nc:x:y",
    )
    assert said.startswith(b"produced 3 records to topic ")
    consumer = Consumer(
        {"bootstrap.servers": cli.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found = [consumer.poll(30) for _ in range(3)]
    consumer.close()
    assert {(row.key(), row.value()) for row in found if row} == {
        (b"a", b"1"),
        (b"b", b"2"),
        (b"c", b"x:y"),
    }
    assert all(row.headers() == [("from", b"cli")] for row in found if row)


def test_a_key_goes_where_kafkas_own_clients_send_it(cli: Cli):
    topic = cli.create(7)
    keys = [b"key-%d" % i for i in range(40)]
    producer = Producer({"bootstrap.servers": cli.bootstrap, "partitioner": "murmur2"})
    for key in keys:
        producer.produce(topic, key=key, value=b"theirs")
    assert producer.flush(60) == 0
    cli.ok("topic", "produce", topic, "--key-separator", " ", given=b" ours\n".join([*keys, b""]))
    rows = [json.loads(line) for line in cli.lines("--json")]
    places = {
        value: {r["key"]: r["partition"] for r in rows if r["value"] == value}
        for value in ("ours", "theirs")
    }
    assert len(places["ours"]) == len(keys)
    assert places["ours"] == places["theirs"]


def test_what_is_consumed_as_json_can_be_produced_again(cli: Cli):
    topic = cli.create(2)
    producer = Producer({"bootstrap.servers": cli.bootstrap})
    producer.produce(
        topic,
        b"\xff\x00",
        b"k",
        partition=1,
        headers={"h": b"\xfe"},
        timestamp=int(time.time()) * 1_000,
    )
    producer.produce(topic, None, b"gone", partition=0)
    assert producer.flush(60) == 0
    before = cli.ok("topic", "consume", topic, "--json")
    said = json.loads(cli.ok("topic", "produce", topic, "--format", "json", "--json", given=before))
    assert said["records"] == 2
    assert said["partitions"] == [
        {"partition": n, "records": 1, "first_offset": 1, "last_offset": 1} for n in (0, 1)
    ]
    rows = [json.loads(line) for line in cli.lines("--json", "--offset", "1")]
    old = [json.loads(line) for line in before.splitlines()]
    assert [r | {"offset": 0} for r in sorted(rows, key=lambda r: r["partition"])] == sorted(
        old, key=lambda r: r["partition"]
    )


def test_a_reader_begins_where_it_is_told(cli: Cli):
    topic = cli.create()
    producer = Producer({"bootstrap.servers": cli.bootstrap})
    now = int(wall_ms())
    for i in range(10):
        producer.produce(topic, b"%d" % i, timestamp=now - (10 - i) * 3_600_000)
    assert producer.flush(60) == 0
    assert cli.lines() == [str(i) for i in range(10)]
    assert cli.lines("--from-beginning", "--max-messages", "2") == ["0", "1"]
    assert cli.lines("--offset", "7") == ["7", "8", "9"]
    assert cli.lines("--offset", "-2") == ["8", "9"]
    assert cli.lines("--offset", "latest") == []
    assert cli.lines("--offset", "700") == []
    assert cli.lines("--since", "150 minutes") == ["8", "9"]
    assert cli.lines("--since", str(now - 4 * 3_600_000)) == ["6", "7", "8", "9"]
    assert cli.lines("--since", "1 minute") == []
    assert cli.lines("--partition", "0", "-n", "1", "--print-offset") == ["Offset:0\t0"]


def wall_ms() -> float:
    import time

    return time.time() * 1000


def test_a_group_goes_on_where_it_committed(cli: Cli):
    topic = cli.create(2)
    group = f"g-{topic}"
    cli.ok("topic", "produce", topic, given=b"1\n2\n3\n4\n")
    first = cli.lines("--group", group, "--max-messages", "3")
    assert len(first) == 3
    second = cli.lines("--group", group)
    assert sorted(first + second) == ["1", "2", "3", "4"]
    cli.ok("topic", "produce", topic, given=b"5\n")
    assert cli.lines("--group", group) == ["5"]
    described = json.loads(cli.ok("group", "describe", group, "--json"))
    assert sum(row["lag"] for row in described["partitions"]) == 0
    assert described["members"] == []


def test_a_follower_prints_what_comes_and_ends_by_a_signal_with_its_offsets_committed(cli: Cli):
    topic = cli.create(2)
    group = f"g-{topic}"
    cli.ok("topic", "produce", topic, given=b"old\n")
    with cli.start(
        "topic", "consume", topic, "--follow", "--from-beginning", "--group", group
    ) as it:
        assert it.stdout is not None
        assert it.stdout.readline() == b"old\n"
        cli.ok("topic", "produce", topic, given=b"new\n")
        assert it.stdout.readline() == b"new\n"
        it.send_signal(signal.SIGINT)
        _, complaint = it.communicate(timeout=60)
    assert (it.returncode, complaint) == (0, b"")
    assert cli.lines("--group", group) == []


def test_a_transaction_is_seen_whole_or_not_at_all(cli: Cli):
    topic = cli.create(3)
    cli.ok("topic", "produce", topic, "--transactional-id", topic, given=b"1\n2\n3\n")
    committed = ("--isolation-level", "read_committed")
    assert sorted(cli.lines(*committed)) == ["1", "2", "3"]
    arguments = ("topic", "produce", topic, "--transactional-id", topic, "--format", "json")
    done = cli.run(*arguments, given=b'{"value": "4"}\n{"valeu": 5}\n')
    assert done.returncode == 1
    assert b"line 2: unknown member 'valeu'" in done.stderr
    assert b"nothing was produced" in done.stderr
    assert sorted(cli.lines(*committed)) == ["1", "2", "3"]


def test_more_than_one_fetch_and_one_batch_hold_comes_through_in_order(cli: Cli):
    topic = cli.create()
    lines = [f"{i:06d}" + "x" * 200 for i in range(30_000)]
    cli.ok("topic", "produce", topic, given="\n".join(lines).encode())
    assert cli.lines() == lines


def test_acks_of_the_leader_alone_are_enough_where_it_is_asked_for(cli: Cli):
    topic = cli.create()
    cli.ok("topic", "produce", topic, "--acks", "1", given=b"a\nb\n")
    assert cli.lines() == ["a", "b"]


def test_lines_before_a_wrong_one_are_in_the_topic_and_counted(own: Cli):
    topic = own.create()
    done = own.run("topic", "produce", topic, "--key-separator", ":", given=b"a:1\nb:2\nc\nd:4\n")
    assert done.returncode == 1
    assert done.stderr.decode() == (
        "holdfast: line 3: it has no separator ':' between key and value: write KEY, the separator"
        " and VALUE, or leave --key-separator out (2 records are in the topic)\n"
    )
    assert own.lines() == ["1", "2"]


def test_an_input_that_cannot_be_read_is_one_line_and_ends_the_transaction(
    own: Cli, tmp_path: Path
):
    words = own.arguments("topic", "produce", own.create(), "--transactional-id", own.name)
    with (tmp_path / "for-writing-only").open("wb") as given:
        done = subprocess.run(words, stdin=given, capture_output=True, timeout=120, check=False)
    said = done.stderr.decode().strip()
    assert (done.returncode, len(said.splitlines())) == (1, 1), said
    assert "the input cannot be read" in said and "the transaction is aborted" in said


def test_a_record_that_the_broker_refuses_is_named_by_its_line(own: Cli):
    own.ok("topic", "create", own.name, "--config", "max.message.bytes=1000")
    done = own.run("topic", "produce", own.name, given=b"x" * 5_000)
    assert done.returncode == 1
    assert b"line 1: " in done.stderr
    assert b"raise max.message.bytes" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["produce", "{near}"], 1, "did you mean '{topic}'?"),
        (["consume", "{near}"], 1, "did you mean '{topic}'?"),
        (["produce", "nothing-like-it"], 1, "create it with `holdfast topic create"),
        (["consume", "{topic}", "--partition", "5"], 1, "has no partition 5: there are 0 to 0"),
        (["consume", "{topic}", "--offset", "soon"], 2, "none of earliest, latest"),
        (["consume", "{topic}", "--since", "soon"], 1, "neither a duration nor a time"),
        (["consume", "{topic}", "--offset", "1", "--since", "1m"], 2, "use only one of"),
        (["consume", "{topic}", "--group", "g", "--partition", "0"], 2, "a group assigns"),
        (["produce", "{topic}", "/nowhere/file"], 1, "/nowhere/file cannot be read"),
        (["produce", "{topic}", "--compression", "zsdt"], 2, "did you mean 'zstd'?"),
        (["produce", "{topic}", "--header", "x"], 2, "'x' is not NAME=VALUE"),
    ],
)
def test_a_mistake_is_one_line_with_a_remedy(own: Cli, words: list[str], code: int, said: str):
    topic = own.create()
    names = {"topic": topic, "near": topic + "x"}
    done = own.run("topic", *(word.format(**names) for word in words))
    assert done.returncode == code, done.stderr
    assert said.format(**names) in done.stderr.decode()
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("verb", ["produce", "consume"])
def test_a_broker_that_is_not_there_is_named_with_the_remedy(verb: str):
    address = f"127.0.0.1:{free_port()}"
    done = Cli(address, "orders").run("topic", verb, "orders")
    assert done.returncode == 1
    assert f"no broker can be reached at {address}" in done.stderr.decode()


def test_a_reader_that_has_had_enough_ends_it_without_a_word(own: Cli):
    topic = own.create()
    own.ok("topic", "produce", topic, given=b"line of some length\n" * 50_000)
    with own.start("topic", "consume", topic, "--follow", "--from-beginning") as running:
        assert running.stdout is not None and running.stderr is not None
        assert running.stdout.readline() == b"line of some length\n"
        running.stdout.close()
        assert running.wait(timeout=60) == 0
        assert running.stderr.read() == b""


def test_a_group_does_not_commit_what_its_reader_did_not_take(own: Cli):
    topic = own.create()
    own.ok("topic", "produce", topic, given=b"line of some length\n" * 50_000)
    with own.start("topic", "consume", topic, "--group", topic) as running:
        assert running.stdout is not None
        running.stdout.readline()
        running.stdout.close()
        assert running.wait(timeout=60) == 0
    assert len(own.lines("--group", topic)) == 50_000


def test_ctrl_c_ends_a_producer_after_what_was_read_is_in_the_topic(own: Cli):
    topic = own.create()
    with own.start("topic", "produce", topic) as running:
        assert running.stdin is not None
        running.stdin.write(b"whole\nhalf")
        running.stdin.flush()
        wait_until(lambda: own.lines() == ["whole"], seconds_max=60, what="the record")
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=60) == 130
        assert running.stderr is not None
        assert b"interrupted: the rest of the input was not produced" in running.stderr.read()
    assert own.lines() == ["whole"]


def test_lines_typed_on_a_terminal_are_sent_as_they_come(own: Cli):
    topic = own.create()
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        own.arguments("topic", "produce", topic),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with running:
        assert running.stderr is not None
        assert b"Ctrl-D ends" in running.stderr.readline()
        os.write(ours, b"typed\n")
        wait_until(lambda: own.lines() == ["typed"], seconds_max=60, what="the record")
        os.write(ours, b"\x04")
        assert running.wait(timeout=60) == 0
    os.close(ours)
    os.close(theirs)


def test_it_needs_nothing_beyond_the_base_install():
    code = (
        "import sys\nimport holdfast.cli.topic\n"
        "loaded = {'pyspark', 'pyarrow', 'numpy', 'numba'} & set(sys.modules)\n"
        "sys.exit(str(loaded) if loaded else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
