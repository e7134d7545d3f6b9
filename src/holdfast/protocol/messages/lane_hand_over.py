"""LaneHandOver (10001), version 0: a broker asks another one to release a lane to it.

Holdfast's own API, which ApiVersions does not list.
"""

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import int16, int32, nullable_string
from holdfast.protocol.message import Message


class LaneHandOverRequest(Message, api_key=ApiKey.LANE_HAND_OVER, versions="0", flexible="0+"):
    lane: int = int32()
    leader_epoch: int = int32()
    to_broker_id: int = int32()


class LaneHandOverResponse(Message, api_key=ApiKey.LANE_HAND_OVER, versions="0", flexible="0+"):
    error_code: int = int16()
    error_message: str | None = nullable_string()
