"""The context that a handler gets beside the request itself."""

import dataclasses

from holdfast.broker.reply_memory import ReplyAccount
from holdfast.protocol.api import ErrorCode


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """The client of a request, and the API version that it uses."""

    api_version: int
    client_id: str | None = None
    client_host: str = ""
    replies: ReplyAccount = dataclasses.field(default_factory=ReplyAccount)
    """The account of the connection's reply bytes."""


def error_code(name: str) -> int:
    """Return the code of an error that a pure core has named."""
    return int(ErrorCode[name])
