"""PlaceLane (10003), version 0: an administrator names the broker that should own a lane.

Holdfast's own API, which ApiVersions does not list. Broker id -1 withdraws the wish.
"""

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import int16, int32, nullable_string
from holdfast.protocol.message import Message


class PlaceLaneRequest(Message, api_key=ApiKey.PLACE_LANE, versions="0", flexible="0+"):
    lane: int = int32()
    broker_id: int = int32(default=-1)
    timeout_ms: int = int32(default=30_000)


class PlaceLaneResponse(Message, api_key=ApiKey.PLACE_LANE, versions="0", flexible="0+"):
    error_code: int = int16()
    error_message: str | None = nullable_string()
