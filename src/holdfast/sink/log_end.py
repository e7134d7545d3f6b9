"""Where the topics of a sink ended when it began, and whether the group is that far.

Owns the answer to "is it all there" for `--once`, over all partitions, also those that other
members have, or had until they died. What another member has landed is known by what it committed,
which is never more.
"""

import asyncio
import re
from collections.abc import Collection
from typing import Final

from holdfast.client.admin import LATEST, list_offset
from holdfast.client.cluster import Cluster
from holdfast.client.groups import committed_positions
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.sink.settings import SinkSettings

AT_ONCE: Final = 32
"""Partitions that are asked for side by side."""


class LogEnd:
    """The ends, asked for once."""

    def __init__(self, cluster: Cluster, settings: SinkSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._goals: dict[TopicPartition, int] | None = None

    async def goals(self) -> dict[TopicPartition, int]:
        """The end of each partition that has records, when this was first asked."""
        if self._goals is None:
            self._goals = await self._asked()
        return self._goals

    async def is_committed(self, partitions: Collection[TopicPartition]) -> bool:
        """Whether the group has committed the ends of these."""
        if not partitions:
            return True
        goals = await self.goals()
        group_id = self._settings.member.group_id
        found = await committed_positions(self._cluster, group_id, sorted(partitions))
        return all(where in found and found[where].offset >= goals[where] for where in partitions)

    async def _asked(self) -> dict[TopicPartition, int]:
        member = self._settings.member
        response = await self._cluster.refresh(None if member.pattern else member.topics)
        pattern = re.compile(member.pattern) if member.pattern else None
        partitions = [
            TopicPartition(topic.name, partition.partition_index)
            for topic in response.topics
            for partition in topic.partitions
            if topic.name
            and (topic.name in member.topics or (pattern and pattern.fullmatch(topic.name)))
        ]
        limit = asyncio.Semaphore(AT_ONCE)

        async def end_of(where: TopicPartition) -> int:
            async with limit:
                listed = await list_offset(
                    self._cluster,
                    *where,
                    at=LATEST,
                    read_committed=self._settings.read_committed,
                )
                return listed.offset

        ends = await asyncio.gather(*(end_of(where) for where in partitions))
        return {where: end for where, end in zip(partitions, ends, strict=True) if end > 0}
