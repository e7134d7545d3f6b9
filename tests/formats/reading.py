"""All records of a partition, up to its end."""

from confluent_kafka import Consumer, TopicPartition


def read(bootstrap: str, topic: str, partition: int, isolation: str) -> list[bytes | None]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "x", "isolation.level": isolation}
    consumer = Consumer(settings | {"enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[bytes | None] = []
    while True:
        message = consumer.poll(30)
        assert message is not None, f"{topic}-{partition} ends after {len(found)} records"
        if message.error():
            consumer.close()
            return found
        found.append(message.value())
