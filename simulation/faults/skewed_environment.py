"""The environment of a simulated process: virtual time on wrong clocks, seeded randomness.

Owns the skew. The monotonic clocks of two processes differ by any amount but run at the same speed,
within the drift that is passed in. Wall clocks may be far off and prove nothing.
"""

from holdfast.environment import SeededEnvironment, VirtualClock
from simulation.virtual_loop import VirtualLoop


class SkewedEnvironment(SeededEnvironment):
    """The environment of one simulated process."""

    def __init__(
        self,
        *,
        seed: int,
        loop: VirtualLoop,
        monotonic_start: float = 0.0,
        drift: float = 0.0,
        wall_offset_ms: int = 1_700_000_000_000,
    ) -> None:
        super().__init__(seed=seed, clock=VirtualClock())
        self._loop = loop
        self._monotonic_start = monotonic_start
        self._speed = 1.0 + drift
        self._wall_offset_ms = wall_offset_ms

    def monotonic(self) -> float:
        return self._monotonic_start + self._loop.time() * self._speed

    def now_ms(self) -> int:
        return self._wall_offset_ms + int(self._loop.time() * 1000)
