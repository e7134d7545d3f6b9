"""What a coordinator's decisions lead to: facts, and answers to requests that may have waited.

Pure. A coordinator is handed an Outbox and knows nothing of sockets, futures or the store.
"""

from typing import NewType, Protocol

from holdfast.groups.facts import GroupFact
from holdfast.protocol.message import Message

Token = NewType("Token", int)
"""A request that is to be answered: now, or when others have come."""


class Outbox(Protocol):
    """Where decisions go."""

    def decide(self, fact: GroupFact) -> None:
        """The fact is true from here on: it is applied when this returns, and durable later."""
        ...

    def answer(self, token: Token, response: Message) -> None:
        """To be sent when all that was decided about its group is durable."""
        ...
