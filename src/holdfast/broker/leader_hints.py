"""Who leads a partition that this broker does not (KIP-951): an answer names it, and where it is
reached, so that a client need not ask for metadata first."""

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.broker.broker import Broker
from holdfast.cluster.peers import Leader, PeerReport
from holdfast.cluster.state import Topic
from holdfast.identifiers import BrokerId


class Hint(NamedTuple):
    """A leader, and its broker."""

    leader: Leader
    report: PeerReport


def hint_for(broker: Broker, topic: Topic | None, partition: int) -> Hint | None:
    """The leader of a partition, where that is another broker that is known to be alive."""
    lane = topic.lane_of(partition) if topic is not None else None
    leader = broker.next_leader_of(lane) if lane is not None else None
    if leader is None or leader.broker_id == broker.settings.broker_id:
        return None
    report = broker.report_of(leader.broker_id)
    return Hint(leader, report) if report is not None else None


def brokers_of(hints: Iterable[Hint]) -> list[PeerReport]:
    """The brokers that hints name, each once."""
    found: dict[BrokerId, PeerReport] = {hint.leader.broker_id: hint.report for hint in hints}
    return [report for _, report in sorted(found.items())]
