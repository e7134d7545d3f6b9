"""Many members of one consumer group in this process, as librdkafka runs them, and what they own.

One thread serves all of them, so a rebalance takes what broker and protocol make it take, and no
member is late because another one is.
"""

import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, TopicPartition

from benchmarks.java_client import ClientFailed

SETTLE_SECONDS_MAX = 120.0
SETTINGS = {
    "eager": {"partition.assignment.strategy": "range", "heartbeat.interval.ms": 500},
    "cooperative": {
        "partition.assignment.strategy": "cooperative-sticky",
        "heartbeat.interval.ms": 500,
    },
    "KIP-848": {"group.protocol": "consumer"},
}
"""By protocol. Members of the classic protocol hear of a rebalance by their next heartbeat, so with
the default of 3 s the client's interval would be all that shows; in KIP-848 the broker sets it."""


class Member:
    """One consumer, and the partitions that it has been given."""

    def __init__(self, bootstrap: str, group_id: str, protocol: str, topic: str) -> None:
        self.owned: set[int] = set()
        self._is_cooperative = protocol != "eager"
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group_id,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 0,
                **SETTINGS[protocol],
            }
        )
        self.consumer.subscribe(
            [topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned |= {found.partition for found in partitions}

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned -= {found.partition for found in partitions}


class Members:
    """The members of one group that are alive."""

    def __init__(self, bootstrap: str, group_id: str, protocol: str, topic: str) -> None:
        self._open = lambda: Member(bootstrap, group_id, protocol, topic)
        self.alive: list[Member] = []

    def __enter__(self) -> "Members":
        return self

    def __exit__(self, *_: object) -> None:
        closers = [threading.Thread(target=member.consumer.close) for member in self.alive]
        for closer in closers:
            closer.start()
        for closer in closers:
            closer.join(SETTLE_SECONDS_MAX)

    def join(self, count: int) -> None:
        self.alive += [self._open() for _ in range(count)]

    def leave(self) -> None:
        self.alive.pop().consumer.close()

    def timed(self, change: Callable[[], None], partitions: int) -> float:
        """How long from a change until each partition has one owner, and each member has some."""
        begun = time.monotonic()
        change()
        while not self._is_settled(partitions):
            if time.monotonic() - begun > SETTLE_SECONDS_MAX:
                owned = sum(len(member.owned) for member in self.alive)
                raise ClientFailed(
                    f"{owned} of {partitions} partitions are assigned to {len(self.alive)} members"
                    f" after {SETTLE_SECONDS_MAX} s"
                )
            for member in self.alive:
                member.consumer.poll(0)
            time.sleep(0.002)
        return time.monotonic() - begun

    def _is_settled(self, partitions: int) -> bool:
        owned = [partition for member in self.alive for partition in member.owned]
        each_has_some = all(member.owned for member in self.alive)
        return each_has_some and len(owned) == partitions == len(set(owned))

    def commit_for(self, seconds: float, topic: str) -> int:
        """Each member commits one of its partitions again and again, one commit at a time; how many
        were made in all."""
        deadline = time.monotonic() + seconds
        counts = [0] * len(self.alive)
        failures: list[KafkaException] = []

        def commit(number: int, member: Member) -> None:
            partition = min(member.owned)
            try:
                while time.monotonic() < deadline:
                    offset = TopicPartition(topic, partition, counts[number])
                    member.consumer.commit(offsets=[offset], asynchronous=False)
                    counts[number] += 1
            except KafkaException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=commit, args=each) for each in enumerate(self.alive)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise ClientFailed(f"a commit failed: {failures[0]}")
        return sum(counts)
