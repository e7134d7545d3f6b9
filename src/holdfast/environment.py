"""The only access to time, randomness and environment variables.

Code that needs one of them receives an Environment, so that the simulation can pass a virtual one.
The linter bans the modules behind it everywhere else.
"""

import os
import random
import time
from collections.abc import Mapping
from typing import Protocol
from uuid import UUID

from holdfast.identifiers import WRITER_ID_BYTES, WriterId

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that also counts while the machine is suspended: a claim must grow old then as well."""


class Environment(Protocol):
    """The time and randomness that code may use."""

    def monotonic(self) -> float:
        """Return seconds on a clock that never goes back. It means nothing outside this process."""
        ...

    def now_ms(self) -> int:
        """Return milliseconds since 1970: for timestamps that people see, never for safety."""
        ...

    def random(self) -> random.Random:
        """Return the source of all randomness: jitter, sampling, shuffles."""
        ...

    def new_uuid(self) -> UUID:
        """Return a random id."""
        ...

    def new_writer_id(self) -> WriterId:
        """Return an id that no other attempt to own a lane will ever have."""
        ...


class SystemEnvironment:
    """The clock and the randomness of this machine."""

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
    """A repeatable environment: a clock that is passed in, and randomness from one seed."""

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
    """A clock that moves only when its caller moves it."""

    def __init__(self, *, seconds: float = 0.0, wall_offset_ms: int = 1_700_000_000_000) -> None:
        self.seconds = seconds
        self.wall_offset_ms = wall_offset_ms

    @property
    def wall_ms(self) -> int:
        return self.wall_offset_ms + int(self.seconds * 1000)


def process_variables() -> Mapping[str, str]:
    """Return the environment variables of this process."""
    return os.environ
