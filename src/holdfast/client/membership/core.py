"""What the shell asks of a membership, whichever its protocol.

Pure. A core says what to send, takes what was answered, and knows what is owned. It is never told
of a connection, and time is handed in.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol
from uuid import UUID

from holdfast.client.membership.answers import Applied
from holdfast.client.membership.interface import MemberState
from holdfast.client.membership.reconciling import Reconciling
from holdfast.protocol.message import Message


class TopicsSeen(NamedTuple):
    """The topics of a cluster at one moment, as far as a member wants them."""

    subscribed: tuple[str, ...]
    counts: Mapping[str, int]
    ids: Mapping[UUID, str]
    looked_for: frozenset[str] | None = None
    """The names that were asked about; None where it was all topics."""

    def covers(self, topics: frozenset[str]) -> bool:
        """Whether each of these would be in here if it existed."""
        return self.looked_for is None or topics <= self.looked_for


class Ask(NamedTuple):
    """A request that is due, and how its answer is read."""

    request: Message
    answer: type[Message]


class Core(Protocol):
    """One membership, from the first join to the last word."""

    held: Reconciling
    member_id: str
    epoch: int

    @property
    def state(self) -> MemberState: ...

    @property
    def wants_topics(self) -> frozenset[str]:
        """Topics beside those subscribed that must be seen before the next request."""
        ...

    @property
    def is_blind(self) -> bool:
        """Nothing can go on before topics have been seen anew."""
        ...

    def see(self, seen: TopicsSeen, now: float) -> None:
        """Take in what topics there are now."""
        ...

    def due_at(self, now: float) -> float | None:
        """When the next request is due; None where something else must happen before."""
        ...

    def ask(self, api_version: int) -> Ask:
        """The next request, in the version that both sides know."""
        ...

    @property
    def asks(self) -> type[Message]:
        """Of which kind the next request is."""
        ...

    @property
    def is_slow(self) -> bool:
        """The coordinator may hold the next answer back for as long as a rebalance takes."""
        ...

    def apply(self, answer: Message, now: float) -> Applied:
        """Take in the answer to what was asked last."""
        ...

    def unanswered(self) -> None:
        """Nobody knows whether the last request arrived."""
        ...

    def given_up(self, now: float) -> None:
        """The owner is done with what it was told to give up."""
        ...

    def stop(self, now: float) -> None:
        """Take no more; give up everything."""
        ...

    def farewell(self) -> Ask | None:
        """How to leave; None where leaving takes no word."""
        ...
