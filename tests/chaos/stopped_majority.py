"""SIGSTOP two of three brokers: how long until the third serves all lanes to a client?

`python -m tests.chaos.stopped_majority --trials 5` prints the seconds of each trial. The clients
are librdkafka's, and know only the third broker: one asks for the leaders, and when all partitions
are led there, another one writes a record into each.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.peers.holdfast import HoldfastBroker
from tests.peers.process import wait_until

BROKERS = (1, 2, 3)
THIRD = 3
LANES = 6
PARTITIONS = 12
TOPIC = "served"
SERVED_SECONDS_MAX = 120.0
TAKEN_SECONDS_MAX = 30.0
"""Three times what it takes. A broker that takes itself for cut off first needs 36 seconds; virtual
time in tests/unit/broker/test_presence.py holds it to nine."""
ASK_SECONDS = 2.0


@contextmanager
def three_brokers(folder: Path) -> Iterator[dict[int, HoldfastBroker]]:
    """They share all lanes, and the topic has partitions in each of them."""
    started: dict[int, HoldfastBroker] = {}
    try:
        for number in BROKERS:
            broker = HoldfastBroker(
                folder / f"broker-{number}",
                store=str(folder / "store"),
                arguments=["--id", str(number), "--lanes", str(LANES)],
            )
            started[number] = broker.start()
        admin = AdminClient({"bootstrap.servers": started[THIRD].bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(60)
        wait_until(
            lambda: set(leaders(started[THIRD])) == set(BROKERS),
            seconds_max=SERVED_SECONDS_MAX,
            what="each broker leads partitions",
        )
        yield started
    finally:
        for broker in started.values():
            broker.process.resume()
            broker.kill()


def leaders(broker: HoldfastBroker) -> list[int]:
    """The leader of each partition, as one broker tells a new client."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    try:
        topic = admin.list_topics(TOPIC, timeout=ASK_SECONDS).topics[TOPIC]
    except KafkaException:
        return []
    return [partition.leader for partition in topic.partitions.values()]


def write_everywhere(broker: HoldfastBroker) -> None:
    """A record into each partition, acknowledged."""
    failed: list[str] = []

    def delivered(error: object, message: Message) -> None:
        if error is not None:
            failed.append(f"partition {message.partition()}: {error}")

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition in range(PARTITIONS):
        producer.produce(TOPIC, b"here", partition=partition, on_delivery=delivered)
    left = producer.flush(SERVED_SECONDS_MAX)
    if left or failed:
        raise RuntimeError(f"{left} records have no answer, {failed}")


def seconds_until_served(folder: Path) -> float:
    """One trial."""
    with three_brokers(folder) as brokers:
        third = brokers[THIRD]
        for number in BROKERS:
            if number != THIRD:
                brokers[number].process.pause()
        stopped_at = time.monotonic()
        wait_until(
            lambda: set(leaders(third)) == {THIRD},
            seconds_max=TAKEN_SECONDS_MAX,
            what="the third broker leads all partitions",
        )
        write_everywhere(third)
        return time.monotonic() - stopped_at


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=5)
    trials = parser.parse_args().trials
    for trial in range(1, trials + 1):
        with tempfile.TemporaryDirectory(prefix="holdfast-stopped-") as folder:
            took = seconds_until_served(Path(folder))
        print(f"trial {trial}: {took:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
