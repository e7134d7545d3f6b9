"""SaslAuthenticate (36), versions 0 to 2: one step of a SASL exchange."""

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import int16, int64, nullable_string, octets
from holdfast.protocol.message import Message


class SaslAuthenticateRequest(
    Message, api_key=ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+"
):
    auth_bytes: bytes = octets()


class SaslAuthenticateResponse(
    Message, api_key=ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+"
):
    error_code: int = int16()
    error_message: str | None = nullable_string()
    auth_bytes: bytes = octets()
    session_lifetime_ms: int = int64(since=1)
