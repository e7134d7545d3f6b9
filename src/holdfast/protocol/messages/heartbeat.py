"""Heartbeat (12), versions 0 to 4: stay in a classic group."""

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import int16, int32, nullable_string, string
from holdfast.protocol.message import Message


class HeartbeatRequest(Message, api_key=ApiKey.HEARTBEAT, versions="0-4", flexible="4+"):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = nullable_string(since=3)


class HeartbeatResponse(Message, api_key=ApiKey.HEARTBEAT, versions="0-4", flexible="4+"):
    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
