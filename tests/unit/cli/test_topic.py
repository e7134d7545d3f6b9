"""`holdfast topic` against a real broker process: what it does, and what a person is told."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.peers.holdfast import HoldfastBroker
from tests.peers.kafka import KafkaBroker
from tests.peers.process import free_port

HOLDFAST = Path(sys.executable).parent / "holdfast"
Done = subprocess.CompletedProcess[str]


def topic(broker: HoldfastBroker | str, *arguments: str, answer: str = "") -> Done:
    bootstrap = broker if isinstance(broker, str) else broker.bootstrap
    return subprocess.run(
        [str(HOLDFAST), "topic", *arguments, "--bootstrap", bootstrap],
        input=answer,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def ok(done: Done) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_topic_is_created_listed_described_and_deleted(holdfast_broker: HoldfastBroker):
    arguments = ("--partitions", "3", "--config", "retention.ms=1000", "--config", "flush.ms=5")
    said = ok(topic(holdfast_broker, "create", "cli.whole", *arguments))
    assert said == "created topic cli.whole with 3 partitions\n"
    listed = {row["name"]: row for row in json.loads(ok(topic(holdfast_broker, "list", "--json")))}
    assert len(listed["cli.whole"]["partitions"]) == 3
    described = json.loads(ok(topic(holdfast_broker, "describe", "cli.whole", "--json")))
    assert described["configs"] == {"retention.ms": "1000", "flush.ms": "5"}
    assert [p["partition"] for p in described["partitions"]] == [0, 1, 2]
    assert {(p["leader"], p["earliest"], p["latest"]) for p in described["partitions"]} == {
        (0, 0, 0)
    }
    assert ok(topic(holdfast_broker, "delete", "cli.whole", "--yes")) == "deleted topic cli.whole\n"
    assert "cli.whole" not in ok(topic(holdfast_broker, "list"))


def test_a_program_is_told_what_was_created_and_deleted(holdfast_broker: HoldfastBroker):
    created = json.loads(
        ok(topic(holdfast_broker, "create", "cli.json", "--partitions", "2", "--json"))
    )
    described = json.loads(ok(topic(holdfast_broker, "describe", "cli.json", "--json")))
    facts = {"topic": "cli.json", "topic_id": described["topic_id"], "partitions": 2}
    assert created == {"action": "created", **facts}
    asked = topic(holdfast_broker, "delete", "cli.json", "--json")
    assert (asked.returncode, asked.stdout) == (2, "")
    assert "add --yes" in asked.stderr
    deleted = json.loads(ok(topic(holdfast_broker, "delete", "cli.json", "--yes", "--json")))
    assert deleted == {"action": "deleted", **facts}
    again = topic(holdfast_broker, "delete", "cli.json", "--yes", "--json")
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr.startswith("holdfast: there is no topic 'cli.json': ")


def test_tables_are_plain_text_in_a_pipe(holdfast_broker: HoldfastBroker):
    ok(topic(holdfast_broker, "create", "cli.tables", "--partitions", "2"))
    lines = ok(topic(holdfast_broker, "list", "--offsets")).splitlines()
    assert lines[0].split() == ["topic", "partition", "earliest", "latest"]
    assert [line.split() for line in lines if line.startswith("cli.tables ")] == [
        ["cli.tables", "0", "0", "0"],
        ["cli.tables", "1", "0", "0"],
    ]
    described = ok(topic(holdfast_broker, "describe", "cli.tables"))
    assert "\x1b" not in described
    assert described.splitlines()[0] == "topic    cli.tables"


def test_the_broker_chooses_the_number_of_partitions_where_none_is_given(
    holdfast_broker: HoldfastBroker,
):
    said = ok(topic(holdfast_broker, "create", "cli.default"))
    assert said == "created topic cli.default with 1 partition\n"


def test_a_topic_that_is_there_is_not_created_again(holdfast_broker: HoldfastBroker):
    ok(topic(holdfast_broker, "create", "cli.twice"))
    done = topic(holdfast_broker, "create", "cli.twice")
    assert done.returncode == 1
    assert done.stderr == (
        "holdfast: topic 'cli.twice' exists already: see `holdfast topic describe cli.twice`\n"
    )


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("retention.sm=1", "did you mean retention.ms?"),
        ("retention.ms=soon", "'soon' is not a whole number"),
        ("cleanup.policy=compress", "delete, compact"),
        ("retention.ms", "not KEY=VALUE"),
    ],
)
def test_a_wrong_config_is_refused_with_the_right_one(
    holdfast_broker: HoldfastBroker, config: str, said: str
):
    done = topic(holdfast_broker, "create", "cli.wrong", "--config", config)
    assert done.returncode != 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert "cli.wrong" not in ok(topic(holdfast_broker, "list"))


@pytest.mark.parametrize("command", [("describe",), ("delete", "--yes")])
def test_an_unknown_topic_is_named_with_the_nearest_one(
    holdfast_broker: HoldfastBroker, command: tuple[str, ...]
):
    topic(holdfast_broker, "create", "cli.nearest")
    done = topic(holdfast_broker, command[0], "cli.neerest", *command[1:])
    assert done.returncode == 1
    assert done.stderr == (
        "holdfast: there is no topic 'cli.neerest': did you mean 'cli.nearest'?\n"
    )


@pytest.mark.parametrize(("answer", "is_gone"), [("n\n", False), ("", False), ("y\n", True)])
def test_a_delete_asks_first(holdfast_broker: HoldfastBroker, answer: str, is_gone: bool):
    topic(holdfast_broker, "create", "cli.asked")
    done = topic(holdfast_broker, "delete", "cli.asked", answer=answer)
    assert "all of its records?" in done.stdout
    assert (done.returncode == 0) == is_gone
    assert ("cli.asked" not in ok(topic(holdfast_broker, "list"))) == is_gone


def test_a_broker_that_is_not_there_is_named_within_seconds_with_the_remedy():
    address = f"127.0.0.1:{free_port()}"
    begun = time.monotonic()
    done = topic(address, "list")
    assert time.monotonic() - begun < 30, "as long as a client waits for a broker that is there"
    assert done.returncode == 1
    assert f"no broker can be reached at {address}" in done.stderr
    assert f"holdfast serve --store DIRECTORY --listen {address}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_bootstrap_that_is_no_address_says_what_one_looks_like():
    done = topic("localhost", "list")
    assert done.returncode == 1
    assert "is not host:port" in done.stderr


@pytest.mark.peer
def test_it_works_on_apache_kafka_too(kafka_broker: KafkaBroker):
    arguments = ("--partitions", "2", "--config", "retention.ms=1000")
    ok(topic(kafka_broker.bootstrap, "create", "cli.kafka", *arguments))
    described = json.loads(ok(topic(kafka_broker.bootstrap, "describe", "cli.kafka", "--json")))
    assert described["configs"] == {"retention.ms": "1000"}
    assert [(p["earliest"], p["latest"]) for p in described["partitions"]] == [(0, 0), (0, 0)]
    done = topic(kafka_broker.bootstrap, "create", "cli.kafka")
    assert "exists already" in done.stderr
    ok(topic(kafka_broker.bootstrap, "delete", "cli.kafka", "--yes"))
    assert topic(kafka_broker.bootstrap, "describe", "cli.kafka").returncode == 1
