"""Produce ten records and read them back, with kafka-python.

    pip install . kafka-python
    holdfast serve --store data/log    # in another terminal
    python examples/with_kafka_python.py

With another broker or topic: --bootstrap HOST:PORT, --topic NAME.
"""

import argparse

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

COUNT = 10


def produce(bootstrap: str, topic: str) -> int:
    """Returns the offset of the first record."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    sent = [producer.send(topic, value=f"hello {i}".encode(), partition=0) for i in range(COUNT)]
    first = sent[0].get(timeout=30).offset
    producer.flush(timeout=30)
    producer.close()
    return first


def consume(bootstrap: str, topic: str, offset: int) -> list[str]:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, consumer_timeout_ms=10_000
    )
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, offset)
    values: list[str] = []
    for record in consumer:
        values.append(record.value.decode())
        if len(values) == COUNT:
            break
    consumer.close()
    return values


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
