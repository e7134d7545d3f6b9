"""What a pipeline under chaos reads: a topic that keeps growing, with each id once or more often.

Owns the records: which ids there are, where each copy was acknowledged, and that there is nothing
whose outcome is unknown. Copies come at once in another partition, a little later, or much later,
so that a dedup meets them in the same micro-batch, in the next one, and after restarts. For state
that is kept by key there is a feed of few keys, which fall silent and come back.
"""

import heapq
import json
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Producer

PAUSE_S = 0.02
LATER_S = (0.3, 3.0, 20.0, 60.0)
KEYS = 300
SILENCES_S = (0.1, 1.0, 5.0, 15.0, 40.0)
AMOUNT_MAX = 1000


class Feed(threading.Thread):
    """A producer in a thread, until it is told to stop."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, *, per_second: float, seed: int
    ) -> None:
        super().__init__(name="feed", daemon=True)
        self.topic = topic
        self.partitions = partitions
        self.acked: dict[tuple[int, int], tuple[str, int]] = {}
        """Partition and offset of each record, with its id and which copy of it that is."""
        self.times_ms: dict[tuple[int, int], int] = {}
        """The timestamp of each record."""
        self.problems: list[str] = []
        self.sent = 0
        self.stopping = threading.Event()
        self._per_second = per_second
        self._chance = random.Random(seed)
        self._ids = 0
        self._later: list[tuple[float, str, int, int]] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 5,
                "enable.idempotence": True,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        begun = time.monotonic()
        while not self.stopping.is_set():
            due = int((time.monotonic() - begun) * self._per_second) - self.sent
            for identity, copy, partition in self._records(due):
                self._send(identity, copy, partition)
            self._producer.poll(0)
            self.stopping.wait(PAUSE_S)
        for _, identity, copy, partition in sorted(self._later):
            self._send(identity, copy, partition)
        if self._producer.flush(60):
            self.problems.append("not live: records are still not acknowledged after 60 s")

    def stop(self) -> None:
        self.stopping.set()
        self.join(90)
        if self.sent != len(self.acked):
            self.problems.append(f"{self.sent} records were sent, {len(self.acked)} acknowledged")

    def _records(self, count: int) -> Iterator[tuple[str, int, int]]:
        """The next records: copies that are due, and new ids."""
        now = time.monotonic()
        for _ in range(count):
            if self._later and self._later[0][0] <= now:
                _, identity, copy, partition = heapq.heappop(self._later)
                yield identity, copy, partition
                continue
            identity = f"order-{self._ids}"
            self._ids += 1
            partition = self._chance.randrange(self.partitions)
            yield identity, 0, partition
            for copy in range(1, self._chance.choice((1, 1, 2, 2, 3))):
                other = self._chance.randrange(self.partitions)
                when = now + self._chance.choice((0.0, self._chance.uniform(0, 1))) * (
                    self._chance.choice(LATER_S)
                )
                heapq.heappush(self._later, (when, identity, copy, other))

    def _send(self, identity: str, copy: int, partition: int) -> None:
        self.sent += 1

        def delivered(error: object, message: Any) -> None:
            if error is not None:
                self.problems.append(f"{identity} copy {copy}: {error}")
                return
            where = message.partition(), message.offset()
            self.times_ms[where] = message.timestamp()[1]
            self.acked[where] = (identity, copy)

        value = json.dumps({"id": identity, "copy": copy}).encode()
        self._producer.produce(self.topic, value=value, partition=partition, on_delivery=delivered)

    def ends(self) -> dict[int, int]:
        """For each partition the offset after its last acknowledged record."""
        found = dict.fromkeys(range(self.partitions), 0)
        for partition, offset in list(self.acked):
            found[partition] = max(found[partition], offset + 1)
        return found


class KeyedFeed(Feed):
    """Few keys, each with silences of its own; what is called a copy elsewhere is an amount."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, *, per_second: float, seed: int
    ) -> None:
        super().__init__(bootstrap, topic, partitions, per_second=per_second, seed=seed)
        self._due = [(0.0, f"user-{i}") for i in range(KEYS)]

    def _records(self, count: int) -> Iterator[tuple[str, int, int]]:
        del count  # the silences are what makes the rate
        now = time.monotonic()
        while self._due[0][0] <= now:
            _, key = self._due[0]
            silence_s = self._chance.random() * self._chance.choice(SILENCES_S)
            heapq.heapreplace(self._due, (now + silence_s, key))
            partition = self._chance.randrange(self.partitions)
            yield key, self._chance.randrange(AMOUNT_MAX), partition
