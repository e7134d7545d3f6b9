"""The topics of the cluster at one instant, as groups see them.

Pure. A value that the shell hands in with each heartbeat; the same object as long as no topic was
created or deleted and no partition was added. Owns which topics a subscription means.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from holdfast.groups.facts import ConsumerMember
from holdfast.groups.topic_pattern import matching
from holdfast.identifiers import PartitionId
from holdfast.protocol.consumer_protocol import TopicPartition

PATTERNS_MAX = 1_000
"""How many expressions are remembered: a member may send another one with each heartbeat."""


class TopicShape(NamedTuple):
    """One topic."""

    topic_id: UUID
    partitions: int


class Topics:
    """All topics by name. Never changes; remembers what expressions have matched."""

    def __init__(self, by_name: Mapping[str, TopicShape]) -> None:
        self.by_name = by_name
        self._matched: dict[str, frozenset[str]] = {}
        self._names: dict[UUID, str] = {}

    def identified(self, names: Iterable[TopicPartition]) -> frozenset[PartitionId]:
        """Partitions as the coordinator knows them; those of topics that are gone are left out."""
        found = ((self.by_name.get(topic), number) for topic, number in names)
        return frozenset(
            PartitionId(topic.topic_id, number)
            for topic, number in found
            if topic is not None and 0 <= number < topic.partitions
        )

    def named(self, partitions: Iterable[PartitionId]) -> list[TopicPartition]:
        """Partitions as clients know them; those of topics that are gone are left out."""
        if len(self._names) != len(self.by_name):
            self._names = {topic.topic_id: name for name, topic in self.by_name.items()}
        return [TopicPartition(self._names[t], n) for t, n in partitions if t in self._names]

    def wanted_by(self, member: ConsumerMember) -> dict[UUID, int]:
        """The topics that a member is subscribed to and that are there, with their partitions."""
        names = set(member.topic_names)
        if member.topic_regex:
            names |= self.matching(member.topic_regex)
        found = (self.by_name[name] for name in names if name in self.by_name)
        return {topic.topic_id: topic.partitions for topic in found}

    def matching(self, regex: str) -> frozenset[str]:
        found = self._matched.get(regex)
        if found is None:
            if len(self._matched) >= PATTERNS_MAX:
                self._matched.clear()
            found = self._matched[regex] = frozenset(matching(regex, self.by_name))
        return found
