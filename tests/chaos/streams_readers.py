"""Readers of the topics of a Streams application: one that follows, one of a whole topic, a survey.

Owns the reading. What counts as committed is decided by librdkafka, so that no code of ours vouches
for it; the survey of markers walks the batches as they are in the log.
"""

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition
from tests.chaos.streams_oracle import Seen
from tests.support.librdkafka import SILENT

from holdfast.client import admin
from holdfast.client.cluster import Cluster
from holdfast.client.fetch import fetch
from holdfast.environment import SystemEnvironment
from holdfast.records.batch import walk
from holdfast.records.control import decode_marker

READ_SECONDS_MAX = 120.0
PASSING = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._TIMED_OUT)


def consumer(bootstrap: str, *, committed: bool) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "logger": SILENT,
        }
    )


def seen_of(message: Any) -> Seen:
    key = message.key()
    return Seen(
        message.partition(),
        message.offset(),
        key.decode() if key is not None else "",
        message.value().decode(),
    )


class Follower(threading.Thread):
    """Reads what is committed, as it is committed, across all kills."""

    def __init__(self, bootstrap: str, topics: dict[str, int]) -> None:
        super().__init__(name="follower", daemon=True)
        self.seen: dict[str, list[Seen]] = {topic: [] for topic in topics}
        self.last_at = 0.0
        self.problems: list[str] = []
        self.stopping = threading.Event()
        self._consumer = consumer(bootstrap, committed=True)
        self._consumer.assign([TopicPartition(t, p, 0) for t in topics for p in range(topics[t])])

    def run(self) -> None:
        while not self.stopping.is_set():
            for message in self._consumer.consume(2000, timeout=0.02):
                error = message.error()
                if error is None:
                    self.seen[message.topic()].append(seen_of(message))
                    self.last_at = time.monotonic()
                elif (
                    error.code() not in (*PASSING, KafkaError._PARTITION_EOF)
                    and not error.retriable()
                ):
                    self.problems.append(f"the follower was told {error}")
        self._consumer.close()

    def stop(self) -> None:
        self.stopping.set()
        self.join(30)


def read_whole(bootstrap: str, topic: str, partitions: int, *, committed: bool) -> list[Seen]:
    """A topic from 0 to its end (for what is committed: to the last stable offset)."""
    reader = consumer(bootstrap, committed=committed)
    rows: list[Seen] = []
    ended: set[int] = set()
    deadline = time.monotonic() + READ_SECONDS_MAX
    try:
        reader.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        while len(ended) < partitions:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic}: only partitions {sorted(ended)} came to their end")
            for message in reader.consume(5000, timeout=0.2):
                error = message.error()
                if error is None:
                    rows.append(seen_of(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
                elif error.code() not in PASSING:
                    raise RuntimeError(f"{topic}: {error}")
    finally:
        reader.close()
    return rows


@dataclass(slots=True, kw_only=True)
class Survey:
    """What the logs of an application's topics hold besides records."""

    committed: set[tuple[int, int]] = field(default_factory=set)
    """Transactions, each by its producer id and epoch (KIP-890 gives each an epoch of its own)."""
    aborted: set[tuple[int, int]] = field(default_factory=set)
    records: int = 0
    problems: list[str] = field(default_factory=list)


async def survey(bootstrap: str, prefix: str) -> Survey:
    """Walk every batch of every topic whose name begins so."""
    found = Survey()
    async with Cluster(bootstrap, environment=SystemEnvironment()) as cluster:
        for topic in await admin.describe_topics(cluster):
            if topic.name.startswith(prefix):
                for partition in topic.leaders:
                    await _survey_partition(cluster, topic.name, partition, found)
    both = found.committed & found.aborted
    if both:
        found.problems.append(f"both committed and aborted: {sorted(both)[:5]}")
    return found


async def _survey_partition(cluster: Cluster, topic: str, partition: int, found: Survey) -> None:
    end = await admin.list_offset(cluster, topic, partition)
    stable = await admin.list_offset(cluster, topic, partition, read_committed=True)
    if stable.offset != end.offset:
        found.problems.append(
            f"{topic}-{partition}: a transaction is still open at {stable.offset} of {end.offset}"
        )
    offset = (await admin.list_offset(cluster, topic, partition, at=admin.EARLIEST)).offset
    while offset < end.offset:
        got = await fetch(cluster, topic, partition, offset, max_wait_ms=0)
        for position, header in walk(got.batches):
            if not header.is_control:
                found.records += header.record_count
                continue
            marker = decode_marker(got.batches[position : position + header.size_bytes])
            if marker is not None:
                ended = found.committed if marker.committed else found.aborted
                ended.add((marker.producer_id, marker.producer_epoch))
        offset = got.next_offset
