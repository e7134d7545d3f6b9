"""What is always true of the cluster's state: named predicates, each with the problem or None.

Pure. The simulation asks all of them after each change. Must never change or repair anything.
"""

from collections import Counter
from collections.abc import Iterator

from holdfast.cluster.state import ControlState


def names_are_of_topics(state: ControlState) -> str | None:
    """Each topic has its name, and each name has a topic."""
    found = {topic.name: topic_id for topic_id, topic in state.topics.items()}
    return None if found == state.names else f"names {state.names}, but topics {found}"


def partitions_are_in_lanes_that_exist(state: ControlState) -> str | None:
    """A partition is in a data lane of this cluster."""
    for topic in state.topics.values():
        if any(not 1 <= lane <= state.lanes for lane in topic.lanes):
            return f"topic {topic.name} has partitions in lanes {sorted(set(topic.lanes))}"
    return None


def visible_partitions_were_decided(state: ControlState) -> str | None:
    """Clients see at most as many partitions of a topic as were decided."""
    for topic in state.topics.values():
        if topic.partitions > len(topic.lanes):
            return f"topic {topic.name}: {topic.partitions} are visible of {len(topic.lanes)}"
    return None


def load_is_what_the_topics_have(state: ControlState) -> str | None:
    """The load of each lane is the number of its partitions."""
    counted = Counter(lane for topic in state.topics.values() for lane in topic.lanes)
    shown = Counter({lane: count for lane, count in state.load.items() if count})
    return None if counted == shown else f"load {dict(shown)}, but partitions {dict(counted)}"


def deleted_topics_are_gone(state: ControlState) -> str | None:
    """A deleted topic is not a topic."""
    both = state.topics.keys() & state.deleted.keys()
    return f"{sorted(map(str, both))} are deleted and still topics" if both else None


def problems(state: ControlState) -> Iterator[str]:
    """Yield what is wrong with the state."""
    for predicate in (
        names_are_of_topics,
        partitions_are_in_lanes_that_exist,
        visible_partitions_were_decided,
        load_is_what_the_topics_have,
        deleted_topics_are_gone,
    ):
        problem = predicate(state)
        if problem is not None:
            yield f"cluster: {problem}"
