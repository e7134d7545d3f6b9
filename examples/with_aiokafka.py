"""Produce ten records and read them back, with aiokafka.

    pip install . aiokafka
    holdfast serve --store data/log    # in another terminal
    python examples/with_aiokafka.py

With another broker or topic: --bootstrap HOST:PORT, --topic NAME.
"""

import argparse
import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

COUNT = 10


async def produce(bootstrap: str, topic: str) -> int:
    """Returns the offset of the first record."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
        sent = [
            await producer.send_and_wait(topic, f"hello {i}".encode(), partition=0)
            for i in range(COUNT)
        ]
    return sent[0].offset


async def consume(bootstrap: str, topic: str, offset: int) -> list[str]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    await consumer.start()
    try:
        consumer.seek(partition, offset)
        async with asyncio.timeout(30):
            return [(await consumer.getone()).value.decode() for _ in range(COUNT)]
    finally:
        await consumer.stop()


async def run(bootstrap: str, topic: str) -> None:
    offset = await produce(bootstrap, topic)
    print(f"produced {COUNT} records from offset {offset} on")
    for value in await consume(bootstrap, topic, offset):
        print(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="greetings")
    options = parser.parse_args()
    asyncio.run(run(options.bootstrap, options.topic))


if __name__ == "__main__":
    main()
