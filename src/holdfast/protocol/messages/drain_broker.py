"""DrainBroker (10004), version 0: start or stop draining a broker.

Holdfast's own API, which ApiVersions does not list. A draining broker hands its lanes over and
takes no others.
"""

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import boolean, int16, int32, nullable_string
from holdfast.protocol.message import Message


class DrainBrokerRequest(Message, api_key=ApiKey.DRAIN_BROKER, versions="0", flexible="0+"):
    broker_id: int = int32()
    is_draining: bool = boolean()


class DrainBrokerResponse(Message, api_key=ApiKey.DRAIN_BROKER, versions="0", flexible="0+"):
    error_code: int = int16()
    error_message: str | None = nullable_string()
