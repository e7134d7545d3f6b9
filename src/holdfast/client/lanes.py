"""Brokers and lanes of a Holdfast cluster: which broker owns which lane, and which should.

Owns the administrator's requests that only Holdfast has. An Apache Kafka cluster does not know
them.
"""

import asyncio
from typing import NamedTuple

from holdfast.client.cluster import Cluster
from holdfast.client.connection import BrokerConnection
from holdfast.client.refusals import BrokerUnavailable, RefusedForNow, RequestRefused, raise_for
from holdfast.errors import CallError
from holdfast.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from holdfast.protocol.messages.drain_broker import DrainBrokerRequest, DrainBrokerResponse
from holdfast.protocol.messages.peer_ping import (
    PeerPingRequest,
    PeerPingResponse,
    PeerReportFields,
)
from holdfast.protocol.messages.place_lane import PlaceLaneRequest, PlaceLaneResponse

NOBODY = -1
WITH_FENCED_SINCE = 2


class BrokerStatus(NamedTuple):
    """One broker. Its report is None if it does not answer."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    report: PeerReportFields | None

    @property
    def lanes(self) -> dict[int, int]:
        """Leader epochs of the lanes it serves, without lanes it is taking or has just given."""
        told = self.report.lanes if self.report is not None else []
        return {each.lane: each.leader_epoch for each in told if each.leader_epoch >= 0}


class ClusterStatus(NamedTuple):
    """All registered brokers of a cluster."""

    cluster_id: str
    controller_id: int
    brokers: list[BrokerStatus]
    lanes: int = 0
    """Number of data lanes in the store; 0 if no broker answers."""


async def cluster_status(cluster: Cluster) -> ClusterStatus:
    """Ask each broker for its report."""
    await cluster.refresh([])
    connection = await cluster.any_connection()
    version = connection.version_for(DescribeClusterRequest)
    told = await connection.request(
        DescribeClusterRequest(include_fenced_brokers=version >= WITH_FENCED_SINCE),
        DescribeClusterResponse,
        version=version,
    )
    raise_for(told.error_code, "DescribeCluster")
    answers = await asyncio.gather(*(_ask(cluster, row.broker_id) for row in told.brokers))
    brokers = [
        BrokerStatus(row.broker_id, row.host, row.port, row.rack, answer and answer.report)
        for row, answer in zip(told.brokers, answers, strict=True)
    ]
    lanes = max((answer.data_lanes for answer in answers if answer is not None), default=0)
    brokers.sort(key=lambda each: each.broker_id)
    return ClusterStatus(told.cluster_id, told.controller_id, brokers, lanes)


async def _ask(cluster: Cluster, broker_id: int) -> PeerPingResponse | None:
    try:
        connection = await cluster.broker(broker_id)
        request = PeerPingRequest(report=PeerReportFields(broker_id=NOBODY))
        answer = await connection.request(request, PeerPingResponse, version=0)
    except (BrokerUnavailable, RefusedForNow):
        return None
    return answer if answer.error_code == 0 else None


async def place_lane(cluster: Cluster, lane: int, broker_id: int) -> None:
    """Set the broker that should own a lane; -1 means any broker."""

    async def attempt() -> None:
        answer = await (await cluster.controller()).request(
            PlaceLaneRequest(lane=lane, broker_id=broker_id), PlaceLaneResponse, version=0
        )
        raise_for(answer.error_code, answer.error_message or f"lane {lane}")

    await cluster.patiently(attempt, f"lane {lane}")


async def drain_broker(cluster: Cluster, broker_id: int, *, is_draining: bool) -> None:
    """Make a broker hand its lanes over and take none, or let it take lanes again."""
    await cluster.refresh([])
    if broker_id not in cluster.brokers:
        known = ", ".join(map(str, sorted(cluster.brokers)))
        raise CallError(f"broker {broker_id} does not answer; those that do are {known}")
    connection: BrokerConnection = await cluster.broker(broker_id)
    answer = await connection.request(
        DrainBrokerRequest(broker_id=broker_id, is_draining=is_draining),
        DrainBrokerResponse,
        version=0,
    )
    if answer.error_code:
        raise RequestRefused(answer.error_code, answer.error_message or f"broker {broker_id}")
