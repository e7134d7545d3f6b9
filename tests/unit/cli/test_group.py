"""`holdfast group` against a real broker process, with a real client's group in it."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.peers.holdfast import HoldfastBroker

HOLDFAST = Path(sys.executable).parent / "holdfast"
RECORDS = 10
WAIT_SECONDS_MAX = 60.0


def group(broker: HoldfastBroker, *arguments: str, answer: str = "") -> tuple[int, str, str]:
    done = subprocess.run(
        [str(HOLDFAST), "group", *arguments, "--bootstrap", broker.bootstrap],
        input=answer,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def ok(outcome: tuple[int, str, str]) -> str:
    code, said, complaint = outcome
    assert code == 0, complaint
    return said


@pytest.fixture
def topic(holdfast_broker: HoldfastBroker, request: pytest.FixtureRequest) -> str:
    """Two partitions with ten records each."""
    name = "groups." + request.node.name.replace("[", ".").rstrip("]")
    admin = AdminClient({"bootstrap.servers": holdfast_broker.bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(30)
    producer = Producer({"bootstrap.servers": holdfast_broker.bootstrap})
    for i in range(2 * RECORDS):
        producer.produce(name, value=b"%d" % i, partition=i % 2)
    assert producer.flush(30) == 0
    return name


@contextmanager
def member(
    broker: HoldfastBroker, group_id: str, topic: str, *, alone: bool = True, **options: str
) -> Iterator[Consumer]:
    """A consumer that, where it is alone, has been assigned something and has read a record."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **options,
        }
    )
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while alone and consumer.poll(0.2) is None:
            assert time.monotonic() < deadline
        yield consumer
    finally:
        consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_committed_offsets_and_lag_are_shown(
    holdfast_broker: HoldfastBroker, topic: str, protocol: str
):
    name = f"shown.{protocol}"
    with member(holdfast_broker, name, topic, **{"group.protocol": protocol}) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
        described = json.loads(ok(group(holdfast_broker, "describe", name, "--json")))
        listed = json.loads(ok(group(holdfast_broker, "list", "--json")))
    assert (described["protocol"], described["state"]) == (protocol, "Stable")
    assert len(described["members"]) == 1
    (owner,) = described["members"]
    assert [
        (p["partition"], p["committed"], p["latest"], p["lag"], p["member"])
        for p in described["partitions"]
    ] == [(0, 4, RECORDS, RECORDS - 4, owner), (1, None, RECORDS, None, owner)]
    assert {row["group_id"]: row["kind"] for row in listed}[name] == protocol


def test_a_group_is_reset_when_nobody_is_in_it(holdfast_broker: HoldfastBroker, topic: str):
    name = "reset"
    with member(holdfast_broker, name, topic) as consumer:
        offsets = [TopicPartition(topic, p, 7) for p in range(2)]
        consumer.commit(offsets=offsets, asynchronous=False)
        code, _, complaint = group(holdfast_broker, "reset", name, "--to", "earliest", "--yes")
        assert code == 1
        assert "has 1 members: stop them first" in complaint
    assert committed(holdfast_broker, name) == {0: 7, 1: 7}
    code, _, _ = group(holdfast_broker, "reset", name, "--to", "earliest", answer="n\n")
    assert code == 1
    assert committed(holdfast_broker, name) == {0: 7, 1: 7}
    for to, expected in (("earliest", 0), ("latest", RECORDS), ("3", 3), ("99", RECORDS)):
        ok(group(holdfast_broker, "reset", name, "--to", to, "--yes"))
        assert committed(holdfast_broker, name) == {0: expected, 1: expected}
    told = ok(group(holdfast_broker, "reset", name, "--to", "+0", "--yes", "--json"))
    assert committed(holdfast_broker, name) == {0: 0, 1: 0}
    moved = {"topic": topic, "before": RECORDS, "after": 0}
    assert json.loads(told) == {
        "action": "reset",
        "group": name,
        "offsets": [{**moved, "partition": partition} for partition in (0, 1)],
    }
    code, told, complaint = group(holdfast_broker, "reset", name, "--to", "latest", "--json")
    assert (code, told) == (2, "")
    assert "add --yes" in complaint


def committed(broker: HoldfastBroker, name: str) -> dict[int, int]:
    described = json.loads(ok(group(broker, "describe", name, "--json")))
    return {p["partition"]: p["committed"] for p in described["partitions"]}


def test_refused_commits_of_a_late_ack_are_counted(holdfast_broker: HoldfastBroker, topic: str):
    name = "late"
    strategy = {"partition.assignment.strategy": "cooperative-sticky"}
    with (
        member(holdfast_broker, name, topic, **strategy) as first,
        member(holdfast_broker, name, topic, alone=False, **strategy) as second,
    ):
        lost = wait_for_the_lost_one(first, second)
        with pytest.raises(KafkaException) as refused:
            first.commit(offsets=[TopicPartition(topic, lost, 9)], asynchronous=False)
        assert refused.value.args[0].name() == "STALE_MEMBER_EPOCH"
        described = json.loads(ok(group(holdfast_broker, "describe", name, "--json")))
        assert described["refused_commits"] == 1
        assert len(first.assignment()) == 1
        second.commit(offsets=[TopicPartition(topic, lost, 2)], asynchronous=False)
    assert committed(holdfast_broker, name)[lost] == 2


def wait_for_the_lost_one(first: Consumer, second: Consumer) -> int:
    """Which partition the second has once each has one."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not (len(first.assignment()) == len(second.assignment()) == 1):
        assert time.monotonic() < deadline
        first.poll(0.1)
        second.poll(0.1)
    return second.assignment()[0].partition


def test_mistakes_are_named_with_their_remedy(holdfast_broker: HoldfastBroker, topic: str):
    with member(holdfast_broker, "invoices", topic):
        code, _, complaint = group(holdfast_broker, "describe", "invoice")
    assert code == 1
    assert "there is no group 'invoice': did you mean 'invoices'?" in complaint
    code, _, complaint = group(holdfast_broker, "reset", "nobody", "--to", "latest", "--yes")
    assert code == 1
    assert "no committed offsets" in complaint
    code, _, complaint = group(holdfast_broker, "reset", "nobody", "--to", "yesterday")
    assert code == 2
    assert "'yesterday' is none of earliest, latest" in complaint
