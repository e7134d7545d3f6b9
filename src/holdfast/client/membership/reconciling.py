"""The steps from the partitions a member owns to those it should own: first give up, then take.

Pure: time is passed in. Owns the set of partitions that are owned at this moment. Must never take a
partition while another one is being given up, so that the `Owner` has one thing to do at a time.
"""

from typing import NamedTuple
from uuid import UUID

from holdfast.protocol.consumer_protocol import TopicPartition

NO_TOPIC_ID = UUID(int=0)


class HeldPartition(NamedTuple):
    """A partition of one topic. A topic that is created again under the same name is another."""

    topic: str
    partition: int
    topic_id: UUID = NO_TOPIC_ID

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


Holding = frozenset[HeldPartition]


class ReconcileStep(NamedTuple):
    """The next call of the `Owner`; at most one of `revoke` and `assign` is not empty."""

    revoke: Holding = frozenset()
    seconds: float = 0.0
    """How long the `Owner` may take to give `revoke` up."""
    assign: Holding = frozenset()


class Reconciling:
    """The owned and the assigned partitions of one member."""

    def __init__(self, *, rebalance_timeout_ms: int) -> None:
        self.owned: Holding = frozenset()
        self.revoking: Holding = frozenset()
        self._target: Holding = frozenset()
        self._due_at = 0.0
        self._allowed_seconds = rebalance_timeout_ms / 1000

    @property
    def target(self) -> Holding:
        return self._target

    @property
    def is_settled(self) -> bool:
        """True if there is nothing to give up or to take."""
        return not self.revoking and self.owned == self._target

    @property
    def names(self) -> frozenset[TopicPartition]:
        return frozenset(held.name for held in self.owned)

    def aim(self, target: Holding, now: float) -> None:
        """Set what the member should own; the time for giving up the rest begins now."""
        if target != self._target:
            self._target = target
            self._due_at = now + self._allowed_seconds

    def step(self, now: float) -> ReconcileStep | None:
        """Return the next step; None while partitions are being given up, or if none is left."""
        if self.revoking:
            return None
        surplus = self.owned - self._target
        if surplus:
            self.revoking = surplus
            seconds = min(self._allowed_seconds, max(0.0, self._due_at - now))
            return ReconcileStep(revoke=surplus, seconds=seconds)
        missing = self._target - self.owned
        if missing:
            self.owned |= missing
            return ReconcileStep(assign=missing)
        return None

    def given_up(self) -> None:
        """Note that the `Owner` has given up what it was asked to."""
        self.owned -= self.revoking
        self.revoking = frozenset()

    def lose(self) -> frozenset[TopicPartition]:
        """Drop all partitions, and return those that were owned."""
        lost = self.names
        self.owned = self.revoking = self._target = frozenset()
        return lost
