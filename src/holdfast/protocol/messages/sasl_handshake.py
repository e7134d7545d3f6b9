"""SaslHandshake (17), versions 0 to 1: choose a SASL mechanism."""

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import STRING, array, int16, string
from holdfast.protocol.message import Message


class SaslHandshakeRequest(Message, api_key=ApiKey.SASL_HANDSHAKE, versions="0-1"):
    mechanism: str = string()


class SaslHandshakeResponse(Message, api_key=ApiKey.SASL_HANDSHAKE, versions="0-1"):
    error_code: int = int16()
    mechanisms: list[str] = array(STRING)
