"""Produce ten records and read them back, with confluent-kafka.

    pip install . confluent-kafka
    holdfast serve --store data/log    # in another terminal
    python examples/produce_consume.py

With another broker or topic: --bootstrap HOST:PORT, --topic NAME.
"""

import argparse

from confluent_kafka import Consumer, Producer, TopicPartition

COUNT = 10


def produce(bootstrap: str, topic: str) -> int:
    """Returns the offset of the first record."""
    offsets: list[int] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for i in range(COUNT):
        producer.produce(
            topic,
            key=f"key-{i}",
            value=f"hello {i}",
            partition=0,
            on_delivery=lambda error, message: offsets.append(message.offset()),
        )
    # When this returns 0, every record is in the store, and any consumer can read it.
    if producer.flush(30):
        raise SystemExit("not all records were acknowledged in 30 s")
    return min(offsets)


def consume(bootstrap: str, topic: str, offset: int) -> list[str]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "readers", "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, offset)])
    messages = consumer.consume(COUNT, timeout=30)
    consumer.close()
    return [message.value().decode() for message in messages]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="greetings")
    options = parser.parse_args()
    offset = produce(options.bootstrap, options.topic)
    print(f"produced {COUNT} records from offset {offset} on")
    for value in consume(options.bootstrap, options.topic, offset):
        print(value)


if __name__ == "__main__":
    main()
