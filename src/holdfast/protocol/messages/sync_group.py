"""SyncGroup (14), versions 0 to 5: send and receive the assignments of a classic group."""

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import array, int16, int32, nullable_string, octets, string
from holdfast.protocol.message import Message, Struct


class SyncGroupRequestAssignment(Struct):
    member_id: str = string()
    assignment: bytes = octets()


class SyncGroupRequest(Message, api_key=ApiKey.SYNC_GROUP, versions="0-5", flexible="4+"):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = nullable_string(since=3)
    protocol_type: str | None = nullable_string(since=5)
    protocol_name: str | None = nullable_string(since=5)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Message, api_key=ApiKey.SYNC_GROUP, versions="0-5", flexible="4+"):
    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    protocol_type: str | None = nullable_string(since=5)
    protocol_name: str | None = nullable_string(since=5)
    assignment: bytes = octets()
