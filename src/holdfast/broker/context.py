"""What a handler is told beside the request itself."""

import dataclasses

from holdfast.broker.reply_memory import ReplyAccount
from holdfast.protocol.api import ErrorCode


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """Who asks, in which version."""

    api_version: int
    client_id: str | None = None
    client_host: str = ""
    replies: ReplyAccount = dataclasses.field(default_factory=ReplyAccount)
    """The reply bytes of the connection."""


def error_code(name: str) -> int:
    """The code of an error that a core named."""
    return int(ErrorCode[name])
