"""The context that a handler gets beside the request itself."""

import dataclasses

from holdfast.broker.reply_memory import ReplyAccount


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """The client of a request, and the API version that it uses."""

    api_version: int
    client_id: str | None = None
    client_host: str = ""
    replies: ReplyAccount = dataclasses.field(default_factory=ReplyAccount)
    """The account of the connection's reply bytes."""
