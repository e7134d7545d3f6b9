"""The interface of a membership: its settings, its description, and its `PartitionOwner`.

Pure. Owns these types, and the rule when a partition is owned: from `assigned` until `revoked` has
returned or `lost` was called, and at no other time.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from holdfast.protocol.consumer_protocol import TopicPartition

MemberState = Literal["joining", "stable", "reconciling", "fenced"]
"""The state of a member. Fenced: the group continued without it, and it has not rejoined yet."""


class PartitionOwner(Protocol):
    """The code that works on the partitions. The member's loop calls it, one call at a time; only
    `lost` may come while `revoked` runs."""

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Take these partitions, besides those already owned. Must return at once."""
        ...

    async def revoked(self, partitions: Collection[TopicPartition], seconds: float) -> None:
        """Give up these partitions within the seconds; they are owned until this returns.

        If they are lost in that time, `lost` is called first and then this call is cancelled.
        """
        ...

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        """Drop these partitions: another member may own them already. Must return at once."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """The settings of one member of a group."""

    group_id: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    """A regular expression that the whole name of a topic must match; in addition to `topics`."""
    protocol: Literal["consumer", "classic"] | None = None
    """The group protocol. None means consumer if the broker has it, and classic otherwise."""
    instance_id: str | None = None
    client_id: str = "holdfast"
    """The client id, for the code that makes the Cluster: every request carries it."""
    rack: str | None = None
    session_timeout_ms: int = 45_000
    """The session timeout of the classic protocol. In the consumer protocol the broker sets it."""
    heartbeat_interval_ms: int = 3_000
    """The heartbeat interval of the classic protocol. In the consumer protocol, see above."""
    rebalance_timeout_ms: int = 300_000
    """How long `revoked` may take: Kafka's max.poll.interval.ms."""
    topics_interval_ms: int = 30_000
    """How often the matching topics and their partitions are looked up."""


class MemberDescription(NamedTuple):
    """The state of a member at one moment."""

    member_id: str
    epoch: int
    """The member epoch (classic: the generation); below 1 while the member is not in the group."""
    state: MemberState
