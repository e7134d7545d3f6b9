"""PeerPing (10000), version 0: what brokers on one store tell each other of themselves.

Holdfast's own; not among what clients are told of.
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
    """How many the store has; 0 where the broker does not know it, or does not tell."""
    heard: list[HeardPeerFields] = array(HeardPeerFields, tag=1)
    """What other brokers said to this one of late."""
