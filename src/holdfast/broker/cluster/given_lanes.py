"""Lanes that this broker gave to another one, which does not report yet that it serves them.

Owns this broker's reports about them: a report without one of its lanes names the lane's new owner.
Otherwise all other brokers, and this one too, would see a lane without an owner, and take it from
the broker that it was given to.
"""

from collections.abc import Generator
from contextlib import contextmanager

from holdfast.cluster.peers import Leader
from holdfast.environment import Environment
from holdfast.identifiers import LaneId

GRACE_S = 3.0
"""How long a lane that was given away counts as its new owner's. After that the new owner either
reports it, or has failed to take it."""


class GivenLanes:
    """The lanes that were given away a moment ago, and their new owners."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._given: dict[LaneId, tuple[Leader, float]] = {}

    def is_giving(self, lane: LaneId) -> bool:
        """True if a lane is being released now. Then no other broker may have it."""
        return lane in self._given and self._given[lane][1] == float("inf")

    @contextmanager
    def giving(self, lane: LaneId, to: Leader) -> Generator[None]:
        """Count a lane as given while the block releases it, and for a while after that."""
        self._given[lane] = (to, float("inf"))
        try:
            yield
        except BaseException:
            del self._given[lane]
            raise
        self._given[lane] = (to, self._environment.monotonic() + GRACE_S)

    def now(self) -> dict[LaneId, Leader]:
        """Return the new owner of each lane that was given away."""
        now = self._environment.monotonic()
        return {lane: to for lane, (to, until) in self._given.items() if now < until}
