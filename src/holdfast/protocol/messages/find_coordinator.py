"""FindCoordinator (10), versions 0 to 6: which broker coordinates a group or a transaction."""

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import STRING, array, int8, int16, int32, nullable_string, string
from holdfast.protocol.message import Message, Struct


class FindCoordinatorRequest(
    Message, api_key=ApiKey.FIND_COORDINATOR, versions="0-6", flexible="3+"
):
    key: str = string(until=3)
    key_type: int = int8(since=1)
    coordinator_keys: list[str] = array(STRING, since=4)


class Coordinator(Struct):
    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()


class FindCoordinatorResponse(
    Message, api_key=ApiKey.FIND_COORDINATOR, versions="0-6", flexible="3+"
):
    throttle_time_ms: int = int32(since=1)
    error_code: int = int16(until=3)
    error_message: str | None = nullable_string(since=1, until=3)
    node_id: int = int32(until=3)
    host: str = string(until=3)
    port: int = int32(until=3)
    coordinators: list[Coordinator] = array(Coordinator, since=4)
