"""Partitions that another broker leads, read from the store for clients in this broker's rack.

Owns the lanes that are followed for that, for as long as clients read them (KIP-392). Must never
answer from a lane before a look at it that began after the request came. So no response is older
than one that the leader gave before.
"""

import asyncio

from holdfast.environment import Environment
from holdfast.follow.lane import FollowedLane
from holdfast.identifiers import LaneId, PartitionId
from holdfast.log.memory import ReadCache, Tail
from holdfast.log.partition import PartitionLog
from holdfast.log.reader import LogReader
from holdfast.log.state import LogState, LogStateKind
from holdfast.store.interface import Store

IDLE_S = 60.0
"""How long a lane stays followed after it was last read."""


class Replica:
    """One lane of another broker, as the store has it."""

    def __init__(
        self, store: Store, environment: Environment, lane: LaneId, cache: ReadCache
    ) -> None:
        self.lane = lane
        self.used_at = environment.monotonic()
        self._followed = FollowedLane[LogState](store, environment, lane, LogStateKind())
        self._looking = asyncio.Lock()
        self.looks = 0
        self._asked = 0
        self._done = 0
        self.reader = LogReader(
            store=store, environment=environment, lane=lane, tail=Tail(0), cache=cache
        )

    @property
    def leader_epoch(self) -> int:
        return self._followed.cursor.leader_epoch

    def log_of(self, partition: PartitionId) -> PartitionLog:
        return self._followed.state.log_of(partition)

    async def look(self) -> None:
        """Learn everything that was durable when this was called. One look serves all callers."""
        self._asked += 1
        asked = self._asked
        async with self._looking:
            if self._done < asked:
                seen = self._asked
                self.looks += 1
                await self._followed.refresh()
                self._done = seen


class Replicas:
    """The lanes that this broker follows."""

    def __init__(self, store: Store, environment: Environment, cache: ReadCache) -> None:
        self._store = store
        self._environment = environment
        self._cache = cache
        self._followed: dict[LaneId, Replica] = {}

    def of(self, lane: LaneId) -> Replica:
        """Return a lane to read from. Before anything of it is answered, call `look`."""
        now = self._environment.monotonic()
        for idle in [each for each in self._followed.values() if now - each.used_at > IDLE_S]:
            del self._followed[idle.lane]
        replica = self._followed.get(lane)
        if replica is None:
            replica = Replica(self._store, self._environment, lane, self._cache)
            self._followed[lane] = replica
        replica.used_at = now
        return replica
