"""What a person would write: confluent-kafka, lines, zstd, one object for 50 MiB; for comparison.

`python -m benchmarks.sink_script BOOTSTRAP TOPIC GROUP STORE`. At least once, and nothing more.
"""

import asyncio
import sys

import cramjam
from confluent_kafka import Consumer, Message, TopicPartition

from holdfast.environment import SystemEnvironment
from holdfast.store.address import open_store

BATCH_BYTES = 50 * 1024 * 1024


class Open:
    def __init__(self, first: int) -> None:
        self.first = first
        self.lines: list[bytes] = []
        self.size = 0


async def main(bootstrap: str, topic: str, group: str, address: str) -> None:
    store = open_store(address, environment=SystemEnvironment())
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 5,
        }
    )
    consumer.subscribe([topic])
    batches: dict[int, Open] = {}
    while True:
        for message in consumer.consume(10_000, timeout=1.0):
            await _take(message, batches, store, consumer, topic)


async def _take(
    message: Message, batches: dict[int, Open], store, consumer: Consumer, topic: str
) -> None:
    value, partition, offset = message.value(), message.partition(), message.offset()
    if message.error() is not None or value is None or partition is None or offset is None:
        return
    batch = batches.get(partition)
    if batch is None:
        batch = batches[partition] = Open(offset)
    batch.lines.append(value)
    batch.size += len(value)
    if batch.size >= BATCH_BYTES:
        body = bytes(cramjam.zstd.compress(b"\n".join(batch.lines), level=3))
        await store.create(f"{topic}+{partition}+{batch.first:020d}.jsonl.zst", (body,))
        consumer.commit(offsets=[TopicPartition(topic, partition, offset + 1)], asynchronous=False)
        del batches[partition]


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5]))
