"""The receiver of a coordinator's facts, and of its answers to requests that may have waited.

Pure. A coordinator gets an Outbox, and must never know of sockets, futures or the store.
"""

from typing import NewType, Protocol

from holdfast.groups.facts import GroupFact
from holdfast.protocol.message import Message

Token = NewType("Token", int)
"""A request that is to be answered, now or when other requests have come."""


class Outbox(Protocol):
    """The receiver of a coordinator's decisions."""

    def decide(self, fact: GroupFact) -> None:
        """Make the fact true: it is applied when this returns, and durable later."""
        ...

    def answer(self, token: Token, response: Message) -> None:
        """Send the response when all that was decided about its group is durable."""
        ...
