"""What a reader of committed records must see of a topic that Spark wrote.

Owns the comparison, from what producers were told alone, and the reading, by librdkafka: as any
user's consumer would.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from confluent_kafka import Consumer, TopicPartition

SHOWN_MAX = 5
POLL_S = 60.0


def read_topic(
    bootstrap: str, topic: str, partitions: int, *, isolation: str = "read_committed"
) -> list[list[str]]:
    """The values of each partition, in order, to the end that this reader may see."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "oracle",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    found: list[list[str]] = [[] for _ in range(partitions)]
    left = set(range(partitions))
    try:
        reader.assign([TopicPartition(topic, partition, 0) for partition in left])
        while left:
            message = reader.poll(POLL_S)
            assert message is not None, f"{topic}: nothing for {POLL_S} s"
            if message.error() is not None:
                left.discard(message.partition())
            else:
                found[message.partition()].append(message.value().decode())
    finally:
        reader.close()
    return found


def check_topic(acked: Iterable[tuple[int, int]], found: list[list[str]]) -> list[str]:
    """Each record of the source once, no other, and those of a source partition in its order."""
    wanted = {f"{partition}-{offset}" for partition, offset in acked}
    seen = Counter(value for values in found for value in values)
    problems = [
        _listed("lost", wanted - set(seen)),
        _listed("doubled", {value for value, times in seen.items() if times > 1}),
        _listed("phantom", set(seen) - wanted),
    ]
    for values in found:
        last: dict[str, int] = {}
        for value in values:
            partition, _, offset = value.partition("-")
            if int(offset) < last.get(partition, -1):
                problems.append(f"out of order: {value} after {partition}-{last[partition]}")
                break
            last[partition] = int(offset)
    return [problem for problem in problems if problem]


def check_told(told: Mapping[int, int], committed: Mapping[int, int]) -> list[str]:
    """A group's offsets are never ahead of the micro-batches that Spark has committed."""
    return [
        f"told too early: partition {partition} at {offset}, committed {committed.get(partition)}"
        for partition, offset in told.items()
        if offset > committed.get(partition, 0)
    ]


def _listed(what: str, values: set[str]) -> str:
    if not values:
        return ""
    return f"{what}: {len(values)}: {', '.join(sorted(values)[:SHOWN_MAX])}"
