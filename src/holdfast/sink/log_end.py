"""Where the topics of a sink ended when it started, and whether the group has come that far.

Owns the decision for `--once` whether everything has landed. It covers all partitions, including
those that other members own, or owned until they died. What another member has landed is known from
its committed offsets, which are never ahead of what has landed.
"""

import asyncio
import re
from collections.abc import Collection
from typing import Final

from holdfast.client.admin import LATEST, list_offset
from holdfast.client.cluster import Cluster
from holdfast.client.groups import committed_positions
from holdfast.client.membership.topics import seen
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.sink.settings import SinkSettings

AT_ONCE: Final = 32
"""Number of partitions whose end is requested at the same time."""


class LogEnd:
    """The end offsets of a sink's topics, requested once."""

    def __init__(self, cluster: Cluster, settings: SinkSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._goals: dict[TopicPartition, int] | None = None

    async def goals(self) -> dict[TopicPartition, int]:
        """Return the end of each partition that had records when this was first called."""
        if self._goals is None:
            self._goals = await self._asked()
        return self._goals

    async def is_committed(self, partitions: Collection[TopicPartition]) -> bool:
        """True if the group has committed the ends of these partitions."""
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
        topics = seen(response, member.topics, pattern, None)
        partitions = [
            TopicPartition(name, index)
            for name in topics.subscribed
            for index in range(topics.counts.get(name, 0))
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
