"""Who is at the other end, and who answers: the two names that broker and edge share."""

from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.broker.reply_memory import ReplyAccount
from holdfast.protocol.connection import Reply, Request


@dataclass(slots=True, kw_only=True, eq=False)
class Peer:
    """One connected client."""

    host: str
    port: int
    listener: str
    replies: ReplyAccount = field(default_factory=ReplyAccount)
    """Its bytes of replies that are being read or not yet sent."""
    session: object | None = None
    """For the dispatcher: what it must remember of this connection."""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Dispatcher(Protocol):
    """What the edge hands requests to."""

    def dispatch(self, request: Request, peer: Peer) -> Reply | Awaitable[Reply]:
        """Called in the order of arrival; what it returns may complete later, in any order.

        An exception, raised or out of the awaitable, closes this connection.
        """
        ...

    def disconnected(self, peer: Peer) -> None:
        """The connection is gone; replies that are still under way will be dropped."""
        ...
