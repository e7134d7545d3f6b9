"""The health of a Holdfast cluster: missing owners and leaders, silent and lagging brokers.

Owns the judgement; `judge` is pure. Must never call a cluster healthy if a part of it did not
answer.
"""

import dataclasses
import enum
from collections.abc import Iterable, Sequence

from holdfast.client.admin import describe_topics
from holdfast.client.cluster import Cluster
from holdfast.client.lanes import NOBODY, BrokerStatus, ClusterStatus, cluster_status

CONTROL_LAG_MAX = 10
"""How many objects a broker may lag in the control lane: it reads the lane every few seconds."""
SHOWN_MAX = 5


class HealthVerdict(enum.IntEnum):
    """The exit code of `holdfast cluster health`."""

    HEALTHY = 0
    DEGRADED = 1
    """Everything is served, but something needs attention."""
    UNHEALTHY = 2
    """Something is not served."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The result of a health check."""

    status: ClusterStatus
    lanes: int
    """Number of data lanes in the store."""
    lanes_without_owner: Sequence[int]
    partitions: int
    partitions_without_leader: Sequence[tuple[str, int]]
    control_lag: dict[int, int]
    """Objects of the control lane that each broker has not read yet; only brokers that answer."""
    problems: Sequence[str]
    warnings: Sequence[str]

    @property
    def verdict(self) -> HealthVerdict:
        if self.problems:
            return HealthVerdict.UNHEALTHY
        return HealthVerdict.DEGRADED if self.warnings else HealthVerdict.HEALTHY


async def cluster_health(cluster: Cluster) -> Health:
    """Ask every broker for its report, and one of them for all topics."""
    status = await cluster_status(cluster)
    leaders = {
        (topic.name, partition): leader.node_id
        for topic in await describe_topics(cluster)
        for partition, leader in topic.leaders.items()
    }
    return judge(status, leaders)


def judge(status: ClusterStatus, leaders: dict[tuple[str, int], int]) -> Health:
    """Judge the brokers' reports. A leader below 0 means that the partition has no leader."""
    owned = {lane for each in status.brokers for lane in each.lanes}
    ownerless = [lane for lane in range(status.lanes + 1) if lane not in owned]
    leaderless = sorted(where for where, leader in leaders.items() if leader < 0)
    numbers = {
        each.broker_id: each.report.control_number
        for each in status.brokers
        if each.report is not None
    }
    newest = max(numbers.values(), default=0)
    lag = {broker_id: newest - number for broker_id, number in numbers.items()}
    problems = [_no_owner(lane) for lane in ownerless]
    if leaderless:
        shown = [f"{topic}-{partition}" for topic, partition in leaderless]
        problems.append(f"{len(leaderless)} partitions have no leader: {_listed(shown)}")
    if status.controller_id == NOBODY and not ownerless:
        problems.append("no broker is the controller")
    warnings = [warning for each in status.brokers for warning in _warnings(each, lag)]
    return Health(
        status=status,
        lanes=status.lanes,
        lanes_without_owner=ownerless,
        partitions=len(leaders),
        partitions_without_leader=leaderless,
        control_lag=lag,
        problems=problems,
        warnings=warnings,
    )


def _no_owner(lane: int) -> str:
    return f"lane {lane} has no owner" + (": topics cannot be changed" if lane == 0 else "")


def _warnings(broker: BrokerStatus, lag: dict[int, int]) -> Iterable[str]:
    name = f"broker {broker.broker_id} at {broker.host}:{broker.port}"
    if broker.report is None:
        yield f"{name} does not answer"
        return
    if broker.report.is_store_away:
        yield f"{name} does not reach the store"
    if lag[broker.broker_id] > CONTROL_LAG_MAX:
        yield f"{name} is {lag[broker.broker_id]} objects behind in the control lane"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
    return ", ".join(names[:SHOWN_MAX]) + more
