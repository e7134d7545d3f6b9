"""Keep Python's garbage collector away from long-lived objects in a process that serves.

Owns which objects the collector examines. A full collection examines all objects and frees next to
nothing, because state is freed when its last reference goes. While 100,000 groups came to a broker
on a busy machine, there were 24 full collections. They stopped the loop for up to 0.6 s of
processor time and 3.9 s on the clock, and freed no object. Must never keep the state of a lane in
memory for good after the broker has left the lane.
"""

import asyncio
import gc
from collections.abc import Mapping
from typing import Any

from holdfast.identifiers import LaneId

OBJECTS_MAX = 50_000
"""If a full collection leaves more objects than this, they are frozen: later collections skip them.
So the next full one examines about 100,000 new objects, which takes 20 to 40 ms."""
LEFT_S = 60.0
"""How long after the broker has left a lane all objects are examined again. By then nothing refers
to the lane. It is full of reference cycles, so only a collection of all objects frees it."""
OLDEST = 2


class LongLivedObjects:
    """The objects that the collector skips, from `begin` to `end`."""

    def __init__(self) -> None:
        self._timers: dict[LaneId, asyncio.TimerHandle] = {}

    def begin(self) -> None:
        gc.freeze()
        gc.callbacks.append(self._collected)

    def end(self) -> None:
        gc.callbacks.remove(self._collected)
        for timer in self._timers.values():
            timer.cancel()
        gc.unfreeze()

    def _collected(self, phase: str, info: Mapping[str, Any]) -> None:
        is_full = phase == "stop" and info["generation"] == OLDEST
        if is_full and len(gc.get_objects(generation=OLDEST)) > OBJECTS_MAX:
            gc.freeze()

    def lane_left(self, lane: LaneId) -> None:
        """After LEFT_S, when the lane is closed, let the next full collection examine all."""
        if lane in self._timers:
            self._timers[lane].cancel()
        loop = asyncio.get_running_loop()
        self._timers[lane] = loop.call_later(LEFT_S, self._look_at_all, lane)

    def _look_at_all(self, lane: LaneId) -> None:
        del self._timers[lane]
        gc.unfreeze()
