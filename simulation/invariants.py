"""Asks the invariants of all cores after each object that a simulated broker publishes.

Owns what is asked when: the logs, groups and transactional ids that the facts are about, and the
state of the cluster. Must never change what it looks at.
"""

from collections.abc import Callable, Iterable

from holdfast.broker.broker import Broker
from holdfast.cluster import invariants as of_clusters
from holdfast.groups import invariants as of_groups
from holdfast.groups.facts import GroupFact
from holdfast.lane.effects import Effect, Journaled, Stored
from holdfast.log import invariants as of_logs
from holdfast.log.data_lane import DataLane
from holdfast.log.facts import Appended, DataFact
from holdfast.transactions import invariants as of_transactions
from holdfast.transactions.facts import TransactionFact


def watch(broker: Broker, report: Callable[[str], None]) -> None:
    """Report each broken invariant of a broker, from the first lane that it opens on."""
    make_lane = broker.served.make_lane

    def make_watched(*arguments: object) -> DataLane:
        lane = make_lane(*arguments)  # pyright: ignore[reportArgumentType]

        def look(effect: Effect[DataFact]) -> None:
            type(lane).consume(lane, effect)  # looked up late: a planted bug replaces the class
            if isinstance(effect, Stored | Journaled):
                for problem in (
                    *_problems(lane, effect.facts),
                    *of_clusters.problems(broker.state),
                ):
                    report(f"broker {broker.settings.broker_id}, lane {lane.lane}: {problem}")

        lane.consume = look
        return lane

    broker.served.make_lane = make_watched


def _problems(lane: DataLane, facts: Iterable[DataFact]) -> Iterable[str]:
    """Yield what is wrong with the parts of a lane that the facts are about."""
    state = lane.state
    for partition in {fact.partition for fact in facts if isinstance(fact, Appended)}:
        log = state.partitions.get(partition)
        if log is not None and not lane.is_offline(partition):
            yield from of_logs.problems(log)
    for group_id in {fact.group_id for fact in facts if isinstance(fact, GroupFact)}:
        group = state.groups.groups.get(group_id)
        if group is not None:
            yield from of_groups.problems(group)
    for name in {fact.transactional_id for fact in facts if isinstance(fact, TransactionFact)}:
        known = state.transactions.transactions.get(name)
        if known is not None:
            yield from of_transactions.problems(known)
