"""DescribeCluster: the brokers of the cluster, and the controller.

The controller is the owner of the control lane. Registered brokers that do not answer are shown as
fenced, if the request asks for fenced brokers.
"""

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.operations import CLUSTER_OPERATIONS, NOT_ASKED
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

API = Api(key=ApiKey.DESCRIBE_CLUSTER, versions=range(3))

BROKERS, CONTROLLERS = 1, 2


def handle(
    broker: Broker, request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    del context
    asked = request.endpoint_type
    if asked != BROKERS:
        known = asked == CONTROLLERS
        return DescribeClusterResponse(
            error_code=(
                ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            ),
            error_message=(
                "this is an endpoint for brokers (1), not for controllers (2)"
                if known
                else f"there is no endpoint type {asked}"
            ),
            endpoint_type=BROKERS,
        )
    alive = {report.broker_id for report in broker.alive()}
    with_operations = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        endpoint_type=BROKERS,
        cluster_id=broker.state.cluster_id,
        controller_id=broker.controller_id(),
        brokers=[
            DescribeClusterBroker(
                broker_id=known.broker_id,
                host=known.host,
                port=known.port,
                rack=known.rack,
                is_fenced=known.broker_id not in alive,
            )
            for known in broker.state.brokers.values()
            if known.broker_id in alive or request.include_fenced_brokers
        ],
        cluster_authorized_operations=CLUSTER_OPERATIONS if with_operations else NOT_ASKED,
    )
