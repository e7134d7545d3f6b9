"""aiokafka's idempotent producer after a batch of its own expired, on Apache Kafka and on Holdfast.

The client drops a batch whose partition had no leader for longer than its request timeout, and
keeps the sequence numbers that it gave it. Every later batch then has a gap before it, for ever:
what it is told is the same on both. Not part of the tests: it shows what a client does, and needs
luck with its timing.

    python -m tests.chaos.expired_batches [--kafka]
"""

import argparse
import asyncio
import tempfile
from pathlib import Path

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, LeaderNotAvailableError, OutOfOrderSequenceNumber
from tests.peers.holdfast_cluster import HoldfastCluster
from tests.peers.kafka_cluster import KafkaCluster

TOPIC = "expired"
WAIT_SECONDS_MAX = 90.0


async def send(producer: AIOKafkaProducer) -> type[KafkaError] | None:
    """The error that one record is refused with; None where it is acknowledged."""
    try:
        await producer.send_and_wait(TOPIC, b"value", partition=0)
    except KafkaError as error:
        return type(error)
    return None


async def send_until(producer: AIOKafkaProducer, wanted: type[KafkaError]) -> None:
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while await send(producer) is not wanted:
            pass  # each try waits for its answer


async def leader_of(bootstrap: str) -> int:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(TOPIC, 1, 1)])
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while True:
                (topic,) = await admin.describe_topics([TOPIC])
                leaders = [partition["leader"] for partition in topic["partitions"]]
                if leaders and leaders[0] >= 0:
                    return leaders[0]
                await asyncio.sleep(0.1)
    finally:
        await admin.close()


async def expire_a_batch(cluster: HoldfastCluster | KafkaCluster) -> None:
    leader = cluster.brokers[await leader_of(cluster.bootstrap)].process
    producer = AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap,
        enable_idempotence=True,
        request_timeout_ms=2_000,
        metadata_max_age_ms=500,
    )
    await producer.start()
    assert await send(producer) is None
    leader.pause()
    try:
        await send_until(producer, LeaderNotAvailableError)
    finally:
        leader.resume()
    await send_until(producer, OutOfOrderSequenceNumber)
    assert {await send(producer) for _ in range(3)} == {OutOfOrderSequenceNumber}
    await producer.stop()
    async with AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap, enable_idempotence=True
    ) as another:
        assert await send(another) is None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kafka", action="store_true", help="on three nodes of Apache Kafka")
    kind = KafkaCluster if parser.parse_args().kafka else HoldfastCluster
    with tempfile.TemporaryDirectory(prefix="holdfast-expired-") as folder:
        cluster = kind(Path(folder))
        try:
            asyncio.run(expire_a_batch(cluster.start()))
        finally:
            cluster.stop()
    print("after its batch expired, only a new producer was heard")


if __name__ == "__main__":
    main()
