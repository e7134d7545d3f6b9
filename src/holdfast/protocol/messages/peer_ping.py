"""PeerPing (10000), version 0: brokers on one store report their state to each other.

Holdfast's own API, which ApiVersions does not list.
"""

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import (
    array,
    boolean,
    int16,
    int32,
    int64,
    nested,
    nullable_string,
    string,
)
from holdfast.protocol.message import Message, Struct


class PeerLane(Struct):
    lane: int = int32()
    leader_epoch: int = int32()
    cleared_number: int = int64(default=-1)
    awaited_broker_id: int = int32(default=-1)
    is_coming: bool = boolean()
    given_to_broker_id: int = int32(default=-1)
    given_leader_epoch: int = int32(default=-1)


class PeerReportFields(Struct):
    broker_id: int = int32()
    incarnation: int = int64()
    host: str = string()
    port: int = int32()
    rack: str | None = nullable_string()
    is_draining: bool = boolean()
    is_store_away: bool = boolean()
    control_number: int = int64()
    lanes: list[PeerLane] = array(PeerLane)


class HeardPeerFields(Struct):
    age_ms: int = int32()
    report: PeerReportFields = nested(PeerReportFields)


class PeerPingRequest(Message, api_key=ApiKey.PEER_PING, versions="0", flexible="0+"):
    cluster_id: str = string()
    report: PeerReportFields = nested(PeerReportFields)


class PeerPingResponse(Message, api_key=ApiKey.PEER_PING, versions="0", flexible="0+"):
    error_code: int = int16()
    report: PeerReportFields = nested(PeerReportFields)
    data_lanes: int = int32(tag=0)
    """The number of data lanes in the store; 0 if the broker does not know it or does not say."""
    heard: list[HeardPeerFields] = array(HeardPeerFields, tag=1)
    """The recent reports that this broker has received from other brokers."""
