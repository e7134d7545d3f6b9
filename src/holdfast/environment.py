"""The one door to time, randomness and environment variables.

Everything that needs one of them is handed an Environment, so that the simulation can hand it a
virtual one. The linter bans the modules behind this door everywhere else.
"""

import os
import random
import time
from collections.abc import Mapping
from typing import Protocol
from uuid import UUID

from holdfast.identifiers import WRITER_ID_BYTES, WriterId

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Counts while the machine is suspended, too: a claim must grow old then as well."""


class Environment(Protocol):
    """What a piece of Holdfast may know of the world outside its inputs."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; it has no meaning outside this process."""
        ...

    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970: for timestamps that people see, never for safety."""
        ...

    def random(self) -> random.Random:
        """The source of all chance: jitter, sampling, shuffles."""
        ...

    def new_uuid(self) -> UUID:
        """A random id."""
        ...

    def new_writer_id(self) -> WriterId:
        """An id that no other attempt to own a lane will ever have."""
        ...


class SystemEnvironment:
    """The real world."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def monotonic(self) -> float:
        return time.clock_gettime(_CLOCK)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def random(self) -> random.Random:
        return self._random

    def new_uuid(self) -> UUID:
        return UUID(bytes=os.urandom(16), version=4)

    def new_writer_id(self) -> WriterId:
        return WriterId(os.urandom(WRITER_ID_BYTES))


class SeededEnvironment:
    """A world that is the same each time: a clock that is handed in, and chance from one seed."""

    def __init__(self, *, seed: int, clock: "VirtualClock") -> None:
        self._random = random.Random(seed)
        self._clock = clock

    def monotonic(self) -> float:
        return self._clock.seconds

    def now_ms(self) -> int:
        return self._clock.wall_ms

    def random(self) -> random.Random:
        return self._random

    def new_uuid(self) -> UUID:
        return UUID(bytes=self._random.randbytes(16), version=4)

    def new_writer_id(self) -> WriterId:
        return WriterId(self._random.randbytes(WRITER_ID_BYTES))


class VirtualClock:
    """A clock that moves only when it is told to."""

    def __init__(self, *, seconds: float = 0.0, wall_offset_ms: int = 1_700_000_000_000) -> None:
        self.seconds = seconds
        self.wall_offset_ms = wall_offset_ms

    @property
    def wall_ms(self) -> int:
        return self.wall_offset_ms + int(self.seconds * 1000)


def process_variables() -> Mapping[str, str]:
    """The environment variables of this process."""
    return os.environ
