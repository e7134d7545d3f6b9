"""LeaveGroup (13), versions 0 to 5: leave a classic group."""

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import array, int16, int32, nullable_string, string
from holdfast.protocol.message import Message, Struct


class MemberIdentity(Struct):
    member_id: str = string()
    group_instance_id: str | None = nullable_string()
    reason: str | None = nullable_string(since=5)


class LeaveGroupRequest(Message, api_key=ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+"):
    group_id: str = string()
    member_id: str = string(until=2)
    members: list[MemberIdentity] = array(MemberIdentity, since=3)


class MemberResponse(Struct):
    member_id: str = string()
    group_instance_id: str | None = nullable_string()
    error_code: int = int16()


class LeaveGroupResponse(Message, api_key=ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+"):
    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, since=3)
