"""A broker that is killed and restarted on a full disk: it serves all that was acknowledged.

Owns the file systems that are filled. Nothing is simulated: a real disk, a real broker, a real
client. What a running broker says on a full disk is in test_store_outage.py; a broker that finds
no reserve is in tests/unit/cli/test_serve_process.py.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.chaos.outage import RETRIABLE, Client
from tests.peers.holdfast import HoldfastBroker
from tests.support.disks import ext4_disk, fill, small_disk

from holdfast.store.keys import RESERVE_FILE
from holdfast.store.reserve import RESERVE_BYTES

pytestmark = pytest.mark.slow

TOPIC = "orders"
DISK_MIB = 32
BALLAST_BYTES = 12 << 20
VALUE_BYTES = 300_000
RECORDS_MAX = 100
REFUSALS = 3
SECONDS_MAX = 60.0

Disk = Callable[..., AbstractContextManager[Path]]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("make_disk", [small_disk, ext4_disk])
def test_a_broker_restarted_on_a_full_disk_serves_all_that_was_acknowledged(
    tmp_path: Path, make_disk: Disk
):
    with make_disk(tmp_path / "disk", mib=DISK_MIB) as disk:
        _fill_restart_and_free(tmp_path, disk)


def _fill_restart_and_free(tmp_path: Path, disk: Path) -> None:
    store = disk / "store"
    ballast, junk = disk / "ballast", disk / "junk"
    ballast.write_bytes(bytes(BALLAST_BYTES))
    broker = HoldfastBroker(tmp_path, store=str(store)).start()
    _wait_for_whole_reserve(broker, store)
    acknowledged = _produce_until_refused(broker)
    assert acknowledged
    left = [RESERVE_BYTES]
    for _ in range(2):
        broker.kill()
        fill(junk)
        broker.start()
        _check_reads(broker, acknowledged)
        told = asyncio.run(_write_once(broker))
        assert told <= {f"Produce: {code}" for code in RETRIABLE}
        left.append((store / RESERVE_FILE).stat().st_size)
    assert left[0] > left[1] > left[2] > 0, "a restart takes a little of the reserve"
    junk.unlink()
    ballast.unlink()
    assert _produce(broker, b"after") is None
    _check_reads(broker, [*acknowledged, b"after"])
    _wait_for_whole_reserve(broker, store)
    broker.stop()


def _wait_for_whole_reserve(broker: HoldfastBroker, store: Path) -> None:
    reserve = store / RESERVE_FILE
    broker.process.wait_until(
        lambda: reserve.exists() and reserve.stat().st_size == RESERVE_BYTES,
        seconds_max=SECONDS_MAX,
        what="the reserve is whole",
    )


def _produce_until_refused(broker: HoldfastBroker) -> list[bytes]:
    """The values that were acknowledged."""
    acknowledged: list[bytes] = []
    refusals = 0
    for number in range(RECORDS_MAX):
        value = b"%06d" % number + os.urandom(VALUE_BYTES)
        error = _produce(broker, value, timeout_ms=2_000)
        if error is None:
            acknowledged.append(value)
            continue
        assert error.code() == KafkaError._MSG_TIMED_OUT, error
        refusals += 1
        if refusals == REFUSALS:
            return acknowledged
    raise AssertionError("the disk never became full")


def _produce(
    broker: HoldfastBroker, value: bytes, *, timeout_ms: int = 60_000
) -> KafkaError | None:
    said: list[KafkaError | None] = []

    def note(error: KafkaError | None, _: Message) -> None:
        said.append(error)

    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": timeout_ms})
    producer.produce(TOPIC, value, on_delivery=note)
    assert producer.flush(SECONDS_MAX) == 0
    return said[0]


def _check_reads(broker: HoldfastBroker, acknowledged: list[bytes]) -> None:
    """Metadata, offsets, and the records: each that was acknowledged, in order. One that was
    refused may be there as well: its client does not know."""
    metadata = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=60)
    partition = metadata.topics[TOPIC].partitions[0]
    assert partition.error is None
    assert partition.leader == 0
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "g"}
    consumer = Consumer({**settings, "enable.auto.commit": False})  # a commit is a write
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        low, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=30)
        assert low == 0
        found = consumer.consume(high, timeout=SECONDS_MAX)
        assert [message.offset() for message in found] == list(range(high))
    finally:
        consumer.close()
    wanted = set(acknowledged)
    assert [message.value() for message in found if message.value() in wanted] == acknowledged


async def _write_once(broker: HoldfastBroker) -> set[str]:
    """What the broker itself says to a record for which there is no room."""
    async with Client(broker.port, TOPIC) as client:
        assert not await client.write(0, size=VALUE_BYTES)
        return set(client.told)
