"""The interface between the shell and the core of a membership, for either protocol.

Pure. A core says what to send, takes in the response, and knows what is owned. It never sees a
connection, and time is passed in.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol
from uuid import UUID

from holdfast.client.membership.answers import Applied
from holdfast.client.membership.interface import MemberState
from holdfast.client.membership.reconciling import Reconciling
from holdfast.protocol.message import Message


class TopicsSeen(NamedTuple):
    """The topics of a cluster at one moment, as far as a member needs them."""

    subscribed: tuple[str, ...]
    counts: Mapping[str, int]
    ids: Mapping[UUID, str]
    looked_for: frozenset[str] | None = None
    """The topic names that were asked for; None if it was all topics."""

    def covers(self, topics: frozenset[str]) -> bool:
        """True if each of these topics would be in here if it existed."""
        return self.looked_for is None or topics <= self.looked_for


class Ask(NamedTuple):
    """A request that is due, and the type of its response."""

    request: Message
    answer: type[Message]


class Core(Protocol):
    """One membership, from the first join until the member leaves."""

    held: Reconciling
    member_id: str
    epoch: int

    @property
    def state(self) -> MemberState: ...

    @property
    def wants_topics(self) -> frozenset[str]:
        """Topics, besides the subscribed ones, that must be looked up before the next request."""
        ...

    @property
    def is_blind(self) -> bool:
        """True if the member cannot continue before topics are looked up again."""
        ...

    def see(self, seen: TopicsSeen, now: float) -> None:
        """Take in the topics that exist now."""
        ...

    def due_at(self, now: float) -> float | None:
        """Return when the next request is due; None if something else must happen first."""
        ...

    def ask(self, api_version: int) -> Ask:
        """Return the next request, in the version that both sides know."""
        ...

    @property
    def asks(self) -> type[Message]:
        """The type of the next request."""
        ...

    @property
    def is_slow(self) -> bool:
        """True if the coordinator may hold the next response back for a whole rebalance."""
        ...

    def apply(self, answer: Message, now: float) -> Applied:
        """Take in the response to the last request."""
        ...

    def unanswered(self) -> None:
        """Note that it is unknown whether the last request arrived."""
        ...

    def given_up(self, now: float) -> None:
        """Note that the `Owner` has given up what it was asked to."""
        ...

    def stop(self, now: float) -> None:
        """Take no more partitions, and give up all."""
        ...

    def farewell(self) -> Ask | None:
        """Return the request that leaves the group; None if none is needed."""
        ...
