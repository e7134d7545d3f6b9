"""Commits a query's progress as offsets of a consumer group, so that lag tools see it.

Owns what was committed last, and that a failure never stops the query: Spark's checkpoint is what
counts, and these offsets are never read back. Spark asks for the next micro-batch only when the
previous one is committed, so the end of that one may be committed here. Must never commit any other
position.
"""

import logging
from collections.abc import Callable, Mapping

from holdfast.client.groups import commit_offsets
from holdfast.errors import HoldfastError
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.spark.runtime.worker import worker
from holdfast.spark.source.kafka_options import ClientOptions
from holdfast.spark.source.offsets import SourceOffset

LOGGER = logging.getLogger("holdfast.spark.group")

COMMIT_MS_MAX = 5_000
"""How long a group that cannot be reached may hold up a micro-batch."""

Commit = Callable[[Mapping[TopicPartition, int]], None]


class GroupOffsets:
    """The offsets that one query has committed to its group."""

    def __init__(self, group_id: str, commit: Commit) -> None:
        self._group_id = group_id
        self._commit = commit
        self._told: dict[TopicPartition, int] = {}
        self._is_failing = False

    def committed(self, end: SourceOffset) -> None:
        """Commit this position to the group: all micro-batches up to it are committed."""
        positions = {TopicPartition(w.topic, w.partition): n for w, n in end.positions.items()}
        news = {where: n for where, n in positions.items() if self._told.get(where) != n}
        if not news:
            return
        try:
            self._commit(news)
        except HoldfastError as error:
            if not self._is_failing:
                LOGGER.warning("group_not_told group=%s: %s", self._group_id, error)
            self._is_failing = True
            return
        self._is_failing = False
        self._told.update(news)


def group_offsets(client: ClientOptions, group_id: str) -> GroupOffsets:
    """Return a GroupOffsets that commits to the coordinator, as a group without members does."""

    def commit(offsets: Mapping[TopicPartition, int]) -> None:
        here = worker()
        asked = commit_offsets(here.cluster(client), group_id, offsets, deadline_ms=COMMIT_MS_MAX)
        here.run(asked)

    return GroupOffsets(group_id, commit)
