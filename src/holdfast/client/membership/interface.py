"""What a member is told, whom it tells what it owns, and what it says of itself.

Pure. Owns the vocabulary of a membership. A partition is owned from `assigned` until `revoked` has
returned or `lost` was called, and at no other time.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from holdfast.protocol.consumer_protocol import TopicPartition

MemberState = Literal["joining", "stable", "reconciling", "fenced"]
"""Fenced: the group has gone on without this member, and it has not joined again yet."""


class Owner(Protocol):
    """Whoever works on the partitions. All calls come from the member's loop, one at a time; only
    `lost` may come while `revoked` runs."""

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """These are owned now, beside those that were before. Returns at once."""
        ...

    async def revoked(self, partitions: Collection[TopicPartition], seconds: float) -> None:
        """These are owned until this returns; it keeps to the seconds.

        Where they are lost meanwhile, `lost` is called first and then this is cancelled.
        """
        ...

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        """These may be another's already. Returns at once."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """One member of a group."""

    group_id: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    """A regular expression that the whole name of a topic must match; beside the names."""
    protocol: Literal["consumer", "classic"] | None = None
    """None: consumer where the broker has it, else classic."""
    instance_id: str | None = None
    client_id: str = "holdfast"
    """For whoever makes the Cluster: it goes out with every request."""
    rack: str | None = None
    session_timeout_ms: int = 45_000
    """Of the classic protocol; in the consumer protocol it is the broker's setting."""
    heartbeat_interval_ms: int = 3_000
    """Of the classic protocol, as above."""
    rebalance_timeout_ms: int = 300_000
    """How long `revoked` may take: Kafka's max.poll.interval.ms."""
    topics_interval_ms: int = 30_000
    """How often the topics that match, and their partitions, are looked for."""


class MemberDescription(NamedTuple):
    """A member at one moment."""

    member_id: str
    epoch: int
    """The member epoch, or in the classic protocol the generation; below 1 while it is not in."""
    state: MemberState
