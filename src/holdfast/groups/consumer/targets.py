"""The target assignment of a consumer group: when a new one is due, and how it is made.

Pure functions over the durable part of a group and the topics. Decides nothing by itself.
"""

from uuid import UUID

from holdfast.groups.consumer.assignors import ASSIGNORS, Subscriber
from holdfast.groups.consumer.reconciliation import by_topic
from holdfast.groups.consumer.state import ConsumerState
from holdfast.groups.facts import ConsumerMember, TargetAssigned
from holdfast.groups.topics import Topics
from holdfast.identifiers import PartitionId


def wish(member: ConsumerMember) -> object:
    """Return what the target assignment depends on in a member."""
    return (member.topic_names, member.topic_regex, member.assignor, member.instance_id)


def is_outdated(durable: ConsumerState, topics: Topics) -> bool:
    """True if subscribed topics have come, gone or grown since the target was made."""
    wanted = {
        PartitionId(topic_id, number)
        for member in durable.members.values()
        for topic_id, count in topics.wanted_by(member).items()
        for number in range(count)
    }
    return wanted != set[PartitionId]().union(*durable.targets.values())


def target_of(group_id: str, durable: ConsumerState, topics: Topics) -> TargetAssigned:
    """Make the target assignment of the current group epoch."""
    partitions: dict[UUID, int] = {}
    members: list[Subscriber] = []
    for member_id, member in durable.members.items():
        wanted = topics.wanted_by(member)
        partitions |= wanted
        target = durable.targets[member_id]
        members.append(Subscriber(member_id, member.instance_id, frozenset(wanted), target))
    assignor = durable.chosen_assignor()
    ordered = {topic_id: partitions[topic_id] for topic_id in sorted(partitions)}
    targets = ASSIGNORS[assignor](members, ordered)
    changed = [(i, by_topic(t)) for i, t in targets.items() if durable.targets[i] != t]
    return TargetAssigned(group_id, durable.group_epoch, assignor, changed)


def subscribed_names(durable: ConsumerState, topics: Topics) -> set[str] | None:
    """Return the names of the topics that members want, existing or not; None while it is unknown
    what their expressions match."""
    expressions = durable.expressions()
    if not topics.has_matched(expressions):
        return None
    found: set[str] = set()
    for member in durable.members.values():
        found.update(member.topic_names)
    return found.union(*(topics.matches[expression] for expression in expressions))
