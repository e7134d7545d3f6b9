"""The topic of batches that come too early, and what is in it."""

from confluent_kafka import Consumer, TopicPartition
from tests.compat.refusing_proxy import SECONDS_MAX
from tests.support.librdkafka import SILENT

TOPIC = "early"


def values_of(bootstrap: str) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "logger": SILENT})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[bytes] = []
    _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=SECONDS_MAX)
    while len(found) < end and (message := consumer.poll(SECONDS_MAX)) is not None:
        found += [value for value in [message.value()] if value is not None]
    consumer.close()
    return found
