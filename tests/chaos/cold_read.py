"""What a fresh process with only the store has: all partitions from 0, and each log's end.

Owns the reading; librdkafka does it, so that no code of the broker's own client vouches for it.
"""

import time
from array import array

from confluent_kafka import Consumer, KafkaException, TopicPartition
from tests.chaos.ledger import identity_of

READ_SECONDS_MAX = 120.0
PAUSE_S = 0.2


class ColdPartition:
    """Identities by offset, from 0 to the end; `problems` where offsets do not go one by one."""

    def __init__(self, end: int) -> None:
        self.end = end
        self.identities = array("q")
        self.problems: list[str] = []


def _ends(consumer: Consumer, where: TopicPartition) -> tuple[int, int]:
    """Both ends of a partition; a broker that was just started may not lead it yet."""
    deadline = time.monotonic() + READ_SECONDS_MAX
    while True:
        try:
            return consumer.get_watermark_offsets(where, timeout=10)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_S)


def read_cold(bootstrap: str, topic: str, partitions: int) -> list[ColdPartition]:
    """Read a topic whole; what does not come in time is missing from the answer."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "cold",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
        }
    )
    try:
        cold: list[ColdPartition] = []
        for partition in range(partitions):
            where = TopicPartition(topic, partition)
            low, high = _ends(consumer, where)
            cold.append(ColdPartition(high))
            if low != 0:
                cold[-1].problems.append(f"{topic}/{partition} starts at {low}")
        consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        deadline = time.monotonic() + READ_SECONDS_MAX
        while any(len(c.identities) < c.end for c in cold) and time.monotonic() < deadline:
            for message in consumer.consume(5000, timeout=0.2):
                if message.error() is not None:
                    cold[0].problems.append(f"the cold read was told {message.error()}")
                    continue
                column = cold[message.partition()].identities
                if message.offset() != len(column):
                    cold[message.partition()].problems.append(
                        f"{topic}/{message.partition()}: offset {message.offset()} came where"
                        f" {len(column)} was next"
                    )
                column.append(identity_of(message.value()))
        for partition, found in enumerate(cold):
            if len(found.identities) != found.end:
                found.problems.append(
                    f"{topic}/{partition}: {len(found.identities)} of {found.end} records came"
                )
        return cold
    finally:
        consumer.close()
