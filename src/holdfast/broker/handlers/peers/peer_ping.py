"""PeerPing: take in another broker's report, and answer with this broker's."""

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.cluster.reports import decoded, encode_heard, encoded
from holdfast.broker.context import RequestContext
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.messages.peer_ping import PeerPingRequest, PeerPingResponse

API = Api(key=ApiKey.PEER_PING, versions=range(1))


def handle(broker: Broker, request: PeerPingRequest, context: RequestContext) -> PeerPingResponse:
    del context
    membership = broker.membership
    mine = encoded(broker.report())
    known, theirs = broker.state.cluster_id, request.cluster_id
    if membership is None or (known and theirs and known != theirs):
        return PeerPingResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, report=mine)
    if request.report.broker_id >= 0:  # otherwise an administrator asks
        membership.neighbours.heard(decoded(request.report))
    return PeerPingResponse(
        report=mine,
        data_lanes=broker.state.lanes,
        heard=encode_heard(membership.neighbours.to_pass_on()),
    )
