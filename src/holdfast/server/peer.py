"""The peer of a connection, and the dispatcher: the two types that broker and server share."""

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
    """The account of its reply bytes that are being read from the log or are not sent yet."""
    session: object | None = None
    """The dispatcher's own state of this connection."""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Dispatcher(Protocol):
    """The interface that takes requests from connections and answers them."""

    def dispatch(self, request: Request, peer: Peer) -> Reply | Awaitable[Reply]:
        """Begin to answer a request. Called in order of arrival; replies complete in any order.

        An exception, raised here or by the awaitable, closes this connection.
        """
        ...

    def disconnected(self, peer: Peer) -> None:
        """Note that the connection is gone: replies still under way will be dropped."""
        ...
