"""From what a member owns to what it should: first give up, then take, then tell.

Pure: time is handed in. Owns the set of partitions that are owned, to the moment. Must never take
a partition while another one is being given up, so that an owner has one thing to do at a time.
"""

from typing import NamedTuple
from uuid import UUID

from holdfast.protocol.consumer_protocol import TopicPartition

NO_TOPIC_ID = UUID(int=0)


class Held(NamedTuple):
    """A partition of one topic: a topic that is created anew under its name is another one."""

    topic: str
    partition: int
    topic_id: UUID = NO_TOPIC_ID

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


Holding = frozenset[Held]


class Step(NamedTuple):
    """What the owner is to be told now; at most one of the two is not empty."""

    revoke: Holding = frozenset()
    seconds: float = 0.0
    """How long the owner may take to give them up."""
    assign: Holding = frozenset()


class Reconciling:
    """The partitions of one member."""

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
        """Nothing is to be given up or taken."""
        return not self.revoking and self.owned == self._target

    @property
    def names(self) -> frozenset[TopicPartition]:
        return frozenset(held.name for held in self.owned)

    def aim(self, target: Holding, now: float) -> None:
        """The member should own these; the time for what that takes away begins now."""
        if target != self._target:
            self._target = target
            self._due_at = now + self._allowed_seconds

    def step(self, now: float) -> Step | None:
        """The next thing to do; None while something is being given up, or nothing is to do."""
        if self.revoking:
            return None
        surplus = self.owned - self._target
        if surplus:
            self.revoking = surplus
            seconds = min(self._allowed_seconds, max(0.0, self._due_at - now))
            return Step(revoke=surplus, seconds=seconds)
        missing = self._target - self.owned
        if missing:
            self.owned |= missing
            return Step(assign=missing)
        return None

    def given_up(self) -> None:
        """The owner is done with what it was told to give up."""
        self.owned -= self.revoking
        self.revoking = frozenset()

    def lose(self) -> frozenset[TopicPartition]:
        """Nothing is owned any more; what was."""
        lost = self.names
        self.owned = self.revoking = self._target = frozenset()
        return lost
