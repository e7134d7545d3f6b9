"""Lanes that this broker has given to another, which has not said yet that it serves them.

Owns what a broker tells of them: who says that a lane is no longer its own says in the same breath
whose it is. Else all others, and the giver itself, would see a lane without an owner, and take it
from the one that it was given to.
"""

from collections.abc import Generator
from contextlib import contextmanager

from holdfast.cluster.peers import Leader
from holdfast.environment import Environment
from holdfast.identifiers import LaneId

GRACE_S = 3.0
"""How long a lane that was given counts as the taker's; by then it says so itself, or failed."""


class GivenLanes:
    """Who was given what, a moment ago."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._given: dict[LaneId, tuple[Leader, float]] = {}

    def is_giving(self, lane: LaneId) -> bool:
        """Whether a lane is being released now: then nobody else may have it."""
        return lane in self._given and self._given[lane][1] == float("inf")

    @contextmanager
    def giving(self, lane: LaneId, to: Leader) -> Generator[None]:
        """Around the release, which may take its time, and is then remembered for a while."""
        self._given[lane] = (to, float("inf"))
        try:
            yield
        except BaseException:
            del self._given[lane]
            raise
        self._given[lane] = (to, self._environment.monotonic() + GRACE_S)

    def now(self) -> dict[LaneId, Leader]:
        """Whose they are."""
        now = self._environment.monotonic()
        return {lane: to for lane, (to, until) in self._given.items() if now < until}
