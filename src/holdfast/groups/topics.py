"""The topics of the cluster at one instant, as groups see them.

Pure. A value that the shell passes in with each heartbeat. `by_name` is the same object as long as
no topic was created or deleted and no partition was added. Owns which topics a subscription means.
Must never match an expression: the shell does that in slices, and passes the result in.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from holdfast.groups.facts import ConsumerMember
from holdfast.identifiers import PartitionId
from holdfast.protocol.consumer_protocol import TopicPartition


class TopicShape(NamedTuple):
    """The id and the number of partitions of one topic."""

    topic_id: UUID
    partitions: int


class Topics:
    """All topics by name, and the names that expressions match. Never changes."""

    def __init__(
        self,
        by_name: Mapping[str, TopicShape],
        matches: Mapping[str, frozenset[str]] | None = None,
    ) -> None:
        self.by_name = by_name
        self.matches = matches or {}
        """The topic names that each expression matches; only expressions of one group."""
        self._names: dict[UUID, str] = {}

    def identified(self, names: Iterable[TopicPartition]) -> frozenset[PartitionId]:
        """Return partitions by topic id; those that do not exist are left out."""
        found = ((self.by_name.get(topic), number) for topic, number in names)
        return frozenset(
            PartitionId(topic.topic_id, number)
            for topic, number in found
            if topic is not None and 0 <= number < topic.partitions
        )

    def named(self, partitions: Iterable[PartitionId]) -> list[TopicPartition]:
        """Return partitions by topic name; those of topics that are gone are left out."""
        if len(self._names) != len(self.by_name):
            self._names = {topic.topic_id: name for name, topic in self.by_name.items()}
        return [TopicPartition(self._names[t], n) for t, n in partitions if t in self._names]

    def wanted_by(self, member: ConsumerMember) -> dict[UUID, int]:
        """Return the existing topics of a member's subscription, with their partition counts."""
        names = set(member.topic_names)
        if member.topic_regex:
            names |= self.matches[member.topic_regex]
        found = (self.by_name[name] for name in names if name in self.by_name)
        return {topic.topic_id: topic.partitions for topic in found}

    def has_matched(self, expressions: Iterable[str]) -> bool:
        """True if it is known what all of these expressions match."""
        return all(expression in self.matches for expression in expressions)

    def unmatched_names(self, expression: str, before: "Topics") -> Iterable[str]:
        """Return the names on which to try an expression, given what it matched before."""
        if expression not in before.matches:
            return self.by_name
        if before.by_name is self.by_name:
            return ()
        return [name for name in self.by_name if name not in before.by_name]

    def matched(self, expression: str, before: "Topics", found: Iterable[str]) -> frozenset[str]:
        """Return what an expression matches: its earlier matches that still exist, and `found`."""
        kept = before.matches.get(expression, frozenset())
        if before.by_name is self.by_name and not found:
            return kept
        return (kept & self.by_name.keys()).union(found)
