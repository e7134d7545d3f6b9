"""Any Kafka as an input, through Holdfast's own client: its topics, offsets and ranges.

Owns planning on the driver; `kafka_read` reads on executors. Must never commit an offset, nor
create a topic.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from uuid import UUID

from holdfast.client.admin import EARLIEST, LATEST, ListedOffset, describe_topics, list_offset
from holdfast.client.cluster import Cluster
from holdfast.client.refusals import RefusedForNow
from holdfast.protocol.api import ErrorCode
from holdfast.spark.runtime.worker import worker
from holdfast.spark.source.inputs import (
    DEFAULT_PLAN,
    DataLoss,
    KafkaWhere,
    Offsets,
    PlanOptions,
    Range,
    SourcePartition,
    TopicInfo,
)
from holdfast.spark.source.kafka_options import ClientOptions

T = TypeVar("T")

ASKED_AT_ONCE = 32
NO_ID = UUID(int=0)
TOPIC_IS_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
UNKNOWN_TOPIC_S_MAX = 5.0
RECORDS_PER_TASK_MIN = 10_000
"""With fewer records, starting a task costs more than its read."""


class KafkaInput:
    """The input at a bootstrap list. Each call asks the cluster again."""

    def __init__(self, client: ClientOptions, *, read_committed: bool = False) -> None:
        self._where = KafkaWhere(client=client, read_committed=read_committed)
        self._worker = worker()
        self._cluster = self._worker.cluster(client)
        self._served: dict[SourcePartition, int] = {}

    def topics(self) -> dict[str, TopicInfo]:
        described = self._worker.run(describe_topics(self._cluster))
        return {
            topic.name: TopicInfo(topic.name, known_id(topic.topic_id), len(topic.leaders))
            for topic in described
        }

    def earliest(self, partitions: Sequence[SourcePartition]) -> dict[SourcePartition, int]:
        listed = self._worker.run(self._list(dict.fromkeys(partitions, EARLIEST)))
        return {partition: row.offset for partition, row in listed.items()}

    def latest(self, partitions: Sequence[SourcePartition]) -> dict[SourcePartition, int]:
        listed = self._worker.run(self._list(dict.fromkeys(partitions, LATEST)))
        for partition, row in listed.items():
            before = self._served.get(partition, row.offset)
            if row.offset < before:
                raise DataLoss(
                    f"{partition}: the latest offset is {row.offset} now, but {before} was served"
                    " before: an unclean leader election, or another cluster?"
                )
            self._served[partition] = row.offset
        return {partition: row.offset for partition, row in listed.items()}

    def by_timestamp(self, at_ms: Offsets) -> dict[SourcePartition, int | None]:
        listed = self._worker.run(self._list(at_ms))
        return {p: row.offset if row.offset >= 0 else None for p, row in listed.items()}

    def plan(
        self, start: Offsets, end: Offsets, options: PlanOptions = DEFAULT_PLAN
    ) -> list[Range]:
        spans = [(p, start[p], last) for p, last in end.items() if start[p] < last]
        total = sum(last - first for _, first, last in spans)
        per_task = max(RECORDS_PER_TASK_MIN, -(-total // max(1, options.min_partitions)))
        ranges: list[Range] = []
        for partition, first, last in spans:
            pieces = max(1, round((last - first) / per_task))
            cuts = [first + (last - first) * i // pieces for i in range(pieces + 1)]
            ranges.extend(
                Range(
                    topic=partition.topic,
                    topic_id=partition.topic_id,
                    partition=partition.partition,
                    start_offset=cuts[i],
                    end_offset=cuts[i + 1],
                    where=self._where,
                    include_headers=options.include_headers,
                    fail_on_data_loss=options.fail_on_data_loss,
                    fail_on_unreadable=options.fail_on_unreadable,
                    quarantine_store=options.quarantine_store,
                    row_filter=options.row_filter,
                )
                for i in range(pieces)
            )
        return ranges

    def close(self) -> None:
        """Do nothing: the connections belong to the process and stay open."""

    async def _list(self, at: Offsets) -> dict[SourcePartition, ListedOffset]:
        asking = asyncio.Semaphore(ASKED_AT_ONCE)
        await check_ids(self._cluster, list(at))

        async def ask(partition: SourcePartition, timestamp: int) -> ListedOffset:
            async with asking:
                return await list_offset(
                    self._cluster,
                    partition.topic,
                    partition.partition,
                    at=timestamp,
                    read_committed=self._where.read_committed,
                )

        answers = await asyncio.gather(*(ask(*item) for item in at.items()))
        return dict(zip(at, answers, strict=True))


def known_id(topic_id: UUID) -> UUID | None:
    """Return a topic id, or None for the zero id that a Kafka without topic ids sends."""
    return topic_id if topic_id != NO_ID else None


async def check_ids(cluster: Cluster, partitions: Sequence[SourcePartition]) -> None:
    """Raise DataLoss if a topic is gone, or if another topic has its name now."""
    wanted = {p.topic: p.topic_id for p in partitions}
    for topic, topic_id in wanted.items():
        patience = TopicPatience(cluster, topic)

        async def describe(topic: str = topic) -> UUID:
            return (await cluster.describe(topic)).topic_id

        found = await cluster.patiently(
            patience.around(describe), f"metadata of topic {topic!r}", topic=topic
        )
        check_id(topic, topic_id, found)


class TopicPatience:
    """Distinguishes a deleted topic from a broker that does not know it yet, by a short wait.

    A broker that cannot be reached is waited for much longer; that is the cluster's task.
    """

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._unknown_since: float | None = None

    def around(self, attempt: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
        """Return the same attempt, but with DataLoss once the topic was unknown for too long."""

        async def watched() -> T:
            try:
                return await attempt()
            except RefusedForNow as refused:
                if refused.code not in TOPIC_IS_GONE:
                    raise
                now = self._cluster.environment.monotonic()
                since = now if self._unknown_since is None else self._unknown_since
                self._unknown_since = since
                if now - since < UNKNOWN_TOPIC_S_MAX:
                    raise
                raise DataLoss(
                    f"topic {self._topic!r} is not there: the cluster did not know it for"
                    f" {now - since:.0f} s: {refused}"
                ) from refused

        return watched


def check_id(topic: str, wanted: UUID | None, found: UUID) -> None:
    """Raise DataLoss if the topic of this name is not the one that was wanted."""
    now = known_id(found)
    if wanted is not None and now is not None and now != wanted:
        raise DataLoss(
            f"topic {topic!r} was deleted and created again: its id is {now}, but the records to"
            f" be read are of {wanted}"
        )
