"""librdkafka as a reader of committed records, and how it is kept quiet."""

import logging

from confluent_kafka import Consumer, TopicPartition


def committed_values(bootstrap: str, topic: str, partition: int) -> list[bytes]:
    """What a librdkafka that reads committed records sees, up to the last stable offset."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    try:
        reader.assign([TopicPartition(topic, partition, 0)])
        found: list[bytes] = []
        while True:
            message = reader.poll(20)
            assert message is not None
            if message.error() is not None:
                return found
            found.append(message.value())
    finally:
        reader.close()


def silenced(name: str) -> logging.Logger:
    """Broken connections are expected here, and each would be a line on standard error."""
    logger = logging.getLogger(name)
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger


SILENT = silenced("tests.librdkafka")
