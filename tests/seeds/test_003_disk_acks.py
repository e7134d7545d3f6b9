"""Seed 003 with acks from a local disk: a broker process, a real client, kill -9.

Acknowledged means readable at once with the flush off, in its window and after many of them, and
there after a SIGKILL with the same disk. Without the disk the partition waits, or goes on and says
what is missing.
"""

import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from tests.peers.holdfast import HoldfastBroker
from tests.peers.process import wait_until

DAY_MS = "86400000"
PATIENCE_S = 20.0
Start = Callable[..., HoldfastBroker]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Brokers on one store, with a spool directory by name or without one."""
    started: list[HoldfastBroker] = []

    def one(spool: str | None = "spool", *more: str) -> HoldfastBroker:
        arguments = ["--spool", str(tmp_path / spool)] if spool else []
        broker = HoldfastBroker(
            tmp_path / f"broker-{len(started)}",
            store=str(tmp_path / "store"),
            arguments=[*arguments, "--claim-valid-ms", "500", *more],
        )
        started.append(broker)
        return broker.start()

    yield one
    for broker in started:
        broker.stop()


def create(broker: HoldfastBroker, name: str = "t", **configs: str) -> None:
    chosen = {"holdfast.ack": "disk", "holdfast.flush.ms": DAY_MS}
    chosen |= {key.replace("_", "."): value for key, value in configs.items()}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1, config=chosen)])[name].result(PATIENCE_S)


def alter(broker: HoldfastBroker, config: str, value: str, name: str = "t") -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    entry = ConfigEntry(config, value, incremental_operation=AlterConfigOpType.SET)
    resource_ = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
    admin.incremental_alter_configs([resource_])[resource_].result(PATIENCE_S)


class Acked:
    """A producer that remembers what was acknowledged, and at which offset."""

    def __init__(self, broker: HoldfastBroker, name: str = "t", **configs: object) -> None:
        self.name = name
        self.records: dict[int, bytes] = {}
        self.errors: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "linger.ms": 0,
                "log_level": 0,
                **configs,
            }  # pyright: ignore
        )

    def send(self, *values: bytes) -> None:
        """Send, and wait for the acks."""
        for value in values:
            self.send_soon(value)
        assert self._producer.flush(PATIENCE_S) == 0

    def send_soon(self, value: bytes) -> None:
        self._producer.produce(self.name, value, on_delivery=self._delivered)
        self._producer.poll(0)

    def wait(self) -> None:
        assert self._producer.flush(PATIENCE_S) == 0

    def _delivered(self, error: KafkaError | None, message: object) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.records[message.offset()] = message.value()  # pyright: ignore


def consumer(broker: HoldfastBroker, **configs: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "log_level": 0,
            **configs,
        }  # pyright: ignore
    )


def read(
    broker: HoldfastBroker, count: int, name: str = "t", offset: int = 0, **configs: object
) -> dict[int, bytes]:
    """So many records from an offset on, through the real fetch path."""
    reader = consumer(broker, **configs)
    found: dict[int, bytes] = {}
    try:
        reader.assign([TopicPartition(name, 0, offset)])
        while len(found) < count:
            message = reader.poll(PATIENCE_S)
            assert message is not None, f"{len(found)} of {count}"
            assert message.error() is None, message.error()
            found[message.offset() or 0] = message.value()  # pyright: ignore
    finally:
        reader.close()
    return found


def latest(broker: HoldfastBroker, name: str = "t") -> int:
    reader = consumer(broker)
    try:
        return reader.get_watermark_offsets(TopicPartition(name, 0), timeout=PATIENCE_S)[1]
    finally:
        reader.close()


def puts(broker: HoldfastBroker) -> float:
    return broker.metric("holdfast_lane_published_entries_total")


def is_offline(broker: HoldfastBroker, name: str = "t") -> bool:
    return broker.metric("holdfast_partition_offline", topic=name) == 1


def values(count: int, start: int = 0) -> list[bytes]:
    return [b"record %d" % number for number in range(start, start + count)]


def test_read_after_ack_with_the_flush_a_day_away(start: Start):
    broker = start()
    create(broker)
    acked = Acked(broker)
    acked.send(b"first")
    before = puts(broker)
    for value in values(10):
        acked.send(value)
        newest = max(acked.records)
        assert read(broker, 1, offset=newest) == {newest: value}
        assert latest(broker) == newest + 1
    assert puts(broker) == before
    assert broker.metric("holdfast_spool_frames_total") >= 10
    assert broker.metric("holdfast_spool_unflushed_bytes") > 0
    assert read(broker, 11) == acked.records


def test_every_acknowledged_record_stays_readable_over_many_flushes(start: Start):
    broker = start()
    create(broker, holdfast_flush_bytes="300")
    acked = Acked(broker)
    for value in values(30):
        acked.send(value)
        assert read(broker, len(acked.records)) == acked.records
    # Four batches reach the bound: eight puts, or fewer where a slow disk lets more gather.
    assert 4 < puts(broker) < 30
    broker.kill()
    again = start()
    assert read(again, 30) == acked.records


def test_in_the_window_of_a_flush_all_is_readable(start: Start):
    broker = start()
    create(broker, holdfast_flush_ms="50")
    acked = Acked(broker)
    for value in values(200):
        acked.send_soon(value)
        acked._producer.poll(0.002)
    acked.wait()
    assert read(broker, 200) == acked.records
    wait_until(
        lambda: broker.metric("holdfast_spool_unflushed_bytes") == 0,
        seconds_max=PATIENCE_S,
        what="a flush",
    )
    assert read(broker, 200) == acked.records


def test_a_bound_of_zero_bytes_gives_one_batch_and_goes_on(start: Start):
    broker = start()
    create(broker)
    acked = Acked(broker)
    for value in values(5):
        acked.send(value)
    tiny = {"fetch.message.max.bytes": 1, "fetch.max.bytes": 1_000, "message.max.bytes": 1_000}
    assert read(broker, 5, **tiny) == acked.records


def test_the_default_path_is_unchanged(start: Start):
    broker = start()
    create(broker, holdfast_ack="store")
    acked = Acked(broker)
    for value in values(5):
        before = puts(broker)
        acked.send(value)
        assert puts(broker) > before
    assert broker.metric("holdfast_spool_frames_total") == 0
    broker.kill()
    assert read(start(None), 5) == acked.records


def test_after_a_kill_every_acknowledged_record_is_at_its_offset(start: Start):
    broker = start()
    create(broker)
    known: dict[int, bytes] = {}
    replayed = 0.0
    for life in range(3):
        acked = Acked(broker, **{"enable.idempotence": True})
        acked.send(b"first of life %d" % life)
        for number in range(300):
            acked.send_soon(b"%d.%d" % (life, number))
            acked._producer.poll(0)
        acked._producer.poll(0.05)
        broker.kill()
        known |= acked.records
        broker = start()
        found = read(broker, len(known))
        assert known.items() <= read(broker, latest(broker)).items(), life
        assert found.keys() == set(range(len(found)))
        acked._producer.purge()
        replayed += broker.metric("holdfast_spool_replayed_batches_total")
    assert replayed > 0


def test_without_its_disk_a_partition_waits_and_others_are_served(start: Start, tmp_path: Path):
    broker = start()
    create(broker)
    create(broker, "plain", holdfast_ack="store")
    acked, plain = Acked(broker), Acked(broker, "plain")
    acked.send(*values(3))
    acked.send(b"last")
    plain.send(b"p")
    broker.kill()
    other = start("other")
    assert is_offline(other)
    metadata = AdminClient({"bootstrap.servers": other.bootstrap}).list_topics("t", PATIENCE_S)
    partition = metadata.topics["t"].partitions[0]
    assert partition.leader == -1
    assert partition.error is not None
    assert partition.error.code() == KafkaError.LEADER_NOT_AVAILABLE
    assert read(other, 1, "plain") == plain.records
    Acked(other, "plain").send(b"q")
    waiting = Acked(other)
    waiting.send_soon(b"while it waits")
    reader = consumer(other)
    reader.assign([TopicPartition("t", 0, 0)])
    assert reader.poll(1.0) is None
    with pytest.raises(KafkaException):
        reader.get_watermark_offsets(TopicPartition("t", 0), timeout=1.0)
    reader.close()
    assert not waiting.records and not waiting.errors
    other.stop()
    waiting._producer.purge()
    back = start()
    assert not is_offline(back)
    found = read(back, latest(back))
    assert acked.records.items() <= found.items()


def test_a_torn_tail_is_cut_and_reported(start: Start, tmp_path: Path):
    broker = start()
    create(broker)
    acked = Acked(broker)
    acked.send(b"first")
    acked.send(*values(20))
    broker.kill()
    (spool,) = (tmp_path / "spool").iterdir()
    with spool.open("ab") as file:
        file.write(spool.read_bytes()[-40:])
    shown = inspect(broker, tmp_path / "spool")
    (row,) = shown["spools"]
    assert (row["state"], row["torn_bytes"], len(row["problems"])) == ("owner", 40, 1)
    (beyond,) = row["not_in_store"]
    assert beyond["last_offset"] == 20
    again = start()
    assert read(again, 21) == acked.records
    assert again.metric("holdfast_spool_torn_bytes_total") == 40
    assert "spool_cut" in again.process.log_text()


def inspect(broker: HoldfastBroker, spool: Path) -> dict[str, list[dict[str, object]]]:
    command = [Path(sys.executable).parent / "holdfast", "inspect", "--store", broker.store]
    done = subprocess.run(
        [*command, "--spool", spool, "--verify", "--json"], capture_output=True, check=True
    )
    return json.loads(done.stdout)


def test_unclean_goes_on_behind_the_hole_and_names_it(start: Start, tmp_path: Path):
    broker = start()
    create(broker)
    acked = Acked(broker)
    acked.send(b"stored")
    acked.send(b"on the disk alone")
    broker.kill()
    other = start("other")
    assert is_offline(other)
    alter(other, "unclean.leader.election.enable", "true")
    wait_until(lambda: not is_offline(other), seconds_max=PATIENCE_S, what="the partition goes on")
    after = Acked(other)
    after.send(b"after")
    (offset,) = after.records
    assert offset > 1
    assert read(other, 2) == {0: b"stored", offset: b"after"}
    assert read(other, 1, offset=1) == {offset: b"after"}
    assert latest(other) == offset + 1
    assert f"offsets=1..{offset - 1}" in other.process.log_text()
    assert other.metric("holdfast_missing_offsets_total") == offset - 1
    shown = inspect(other, tmp_path / "spool")
    assert f'"base_offset": 1, "last_offset": {offset - 1}' in json.dumps(shown["survey"])
    assert [row["state"] for row in shown["spools"]] == ["given up"]
    assert shown["harmed"] == []


def test_a_topic_is_switched_while_it_is_produced_to(start: Start):
    broker = start()
    create(broker)
    acked = Acked(broker, **{"enable.idempotence": True})
    for turn in range(6):
        for value in values(100, 100 * turn):
            acked.send_soon(value)
        alter(broker, "holdfast.ack", "store" if turn % 2 else "disk")
    acked.wait()
    assert not acked.errors
    assert sorted(acked.records) == list(range(600))
    assert [acked.records[offset] for offset in range(600)] == values(600)
    broker.kill()
    assert read(start(), 600) == acked.records


def test_a_disk_that_is_full_sends_producers_to_the_store(start: Start):
    broker = start()
    create(broker)
    acked = Acked(broker)
    acked.send(b"first")
    # Each frame has a header of its own: so many are more than the one object that takes them.
    resource.prlimit(broker.process.pid, resource.RLIMIT_FSIZE, (20_000, 20_000))
    for value in values(120):
        acked.send(value)
    assert not acked.errors
    assert broker.metric("holdfast_spool_failures_total") > 0
    assert broker.metric("holdfast_spool_frames_total") > 20
    assert read(broker, 121) == acked.records
    broker.kill()
    assert read(start(), 121) == acked.records


def test_a_clean_stop_leaves_everything_in_the_store(start: Start):
    broker = start()
    create(broker)
    acked = Acked(broker)
    acked.send(b"first")
    acked.send(*values(50))
    broker.stop()
    other = start("other")
    assert not is_offline(other)
    assert read(other, 51) == acked.records


def test_a_spool_that_cannot_be_used_is_refused_before_any_lane_is_claimed(tmp_path: Path):
    (tmp_path / "file").write_text("")
    command = [Path(sys.executable).parent / "holdfast", "serve", "--store", tmp_path / "store"]
    done = subprocess.run(
        [*command, "--listen", "127.0.0.1:0", "--spool", tmp_path / "file"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "spool directory" in done.stderr
    assert not list((tmp_path / "store").rglob("lanes/*/*"))
