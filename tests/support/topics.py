"""Topics of a cluster that tests make and fill, and what Spark wrote about reading them."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from tests.peers.process import wait_until

SET = AlterConfigOpType.SET
KEPT = {"retention.ms": "-1"}
"""Timestamps of tests may be years old, and retention would take them in the middle of one."""


class Topics:
    """Topics of one cluster, as a user would make and fill them."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._producer = self._new_producer()

    def _new_producer(self) -> Producer:
        return Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, "log_level": 0})

    def create(self, topic: str, partitions: int = 1) -> None:
        made = NewTopic(topic, partitions, 1, config=KEPT)
        self._admin.create_topics([made])[topic].result(30)
        self._wait_for(topic, lambda found: found is not None)

    def set_config(self, topic: str, name: str, value: str) -> None:
        """Change one setting of a topic."""
        resource = ConfigResource(
            ResourceType.TOPIC,
            topic,
            incremental_configs=[ConfigEntry(name, value, incremental_operation=SET)],
        )
        for future in self._admin.incremental_alter_configs([resource]).values():
            future.result(30)

    def grow(self, topic: str, partitions: int) -> None:
        self._admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)
        self._wait_for(topic, lambda found: found == partitions)
        # The old one refuses, from what it knows by itself, a partition that it has not heard of.
        self._producer = self._new_producer()

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(30)
        self._wait_for(topic, lambda found: found is None)
        self._producer = self._new_producer()

    def truncate(self, topic: str, partition: int, *, before: int) -> None:
        """Take away the records of a partition that are before an offset."""
        asked = self._admin.delete_records([TopicPartition(topic, partition, before)])
        for future in asked.values():
            future.result(30)

    def _wait_for(self, topic: str, is_right: Callable[[int | None], bool]) -> None:
        def look() -> bool:
            found = self._admin.list_topics(timeout=10).topics.get(topic)
            there = None if found is None or found.error is not None else len(found.partitions)
            return is_right(there)

        wait_until(look, seconds_max=30, what=f"{topic} is as it should be")

    def produce(
        self,
        topic: str,
        values: Sequence[bytes | str | None],
        *,
        partition: int = 0,
        headers: list[tuple[str, bytes | None]] | None = None,
        timestamp_ms: int = 0,
    ) -> None:
        """One record for each value, in order; each has a key, and they are there when it ends."""
        failed: list[object] = []
        for i, value in enumerate(values):
            self._producer.produce(
                topic,
                value=value,
                key=f"k{i}",
                partition=partition,
                headers=headers,
                timestamp=timestamp_ms + i if timestamp_ms else 0,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        assert self._producer.flush(60) == 0
        assert not failed


def offset_log(checkpoint: Path) -> dict[int, dict[str, Any]]:
    """What Spark wrote as the end of each micro-batch of a query with one source."""
    found: dict[int, dict[str, Any]] = {}
    for path in (checkpoint / "offsets").iterdir():
        if path.name.isdigit():
            found[int(path.name)] = json.loads(path.read_text().splitlines()[-1])
    return found
