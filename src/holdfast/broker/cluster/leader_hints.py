"""Leader hints (KIP-951): responses name the leaders of partitions that this broker does not lead.

The hint has the leader's address, so that a client need not ask for metadata first.
"""

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.broker.broker import Broker
from holdfast.cluster.peers import Leader, PeerReport
from holdfast.cluster.state import Topic
from holdfast.identifiers import BrokerId


class Hint(NamedTuple):
    """The leader of a partition, and its broker's report."""

    leader: Leader
    report: PeerReport


def hint_for(broker: Broker, topic: Topic | None, partition: int) -> Hint | None:
    """Return the leader of a partition if that is another broker that is known to be alive."""
    lane = topic.lane_of(partition) if topic is not None else None
    leader = broker.next_leader_of(lane) if lane is not None else None
    if leader is None or leader.broker_id == broker.settings.broker_id:
        return None
    report = broker.report_of(leader.broker_id)
    return Hint(leader, report) if report is not None else None


def brokers_of(hints: Iterable[Hint]) -> list[PeerReport]:
    """Return the brokers that hints name, each once."""
    found: dict[BrokerId, PeerReport] = {hint.leader.broker_id: hint.report for hint in hints}
    return [report for _, report in sorted(found.items())]
