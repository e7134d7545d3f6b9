"""JoinGroup (11), versions 0 to 9: join a classic group."""

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import array, boolean, int16, int32, nullable_string, octets, string
from holdfast.protocol.message import Message, Struct


class JoinGroupRequestProtocol(Struct):
    name: str = string()
    metadata: bytes = octets()


class JoinGroupRequest(Message, api_key=ApiKey.JOIN_GROUP, versions="0-9", flexible="6+"):
    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32(default=-1, since=1)
    member_id: str = string()
    group_instance_id: str | None = nullable_string(since=5)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = nullable_string(since=8)


class JoinGroupResponseMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = nullable_string(since=5)
    metadata: bytes = octets()


class JoinGroupResponse(Message, api_key=ApiKey.JOIN_GROUP, versions="0-9", flexible="6+"):
    throttle_time_ms: int = int32(since=2)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = nullable_string(since=7)
    protocol_name: str | None = nullable_string(default="", nullable_since=7)
    leader: str = string()
    skip_assignment: bool = boolean(since=9)
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
