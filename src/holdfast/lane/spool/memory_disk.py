"""A disk that is simulated: what a crash leaves of it, a disk that is full, and how long it takes.

It ships with Holdfast for simulations and tests. A write that is under way is half there: so a
process that ends in the middle leaves a torn tail. Must never call something durable that is not.
"""

import asyncio
from collections.abc import Sequence

from holdfast.environment import Environment
from holdfast.lane.entry import Buffer
from holdfast.lane.spool.disk import DiskFailed


class MemoryDisk:
    """One disk of one machine. A process that is killed leaves it as it is."""

    def __init__(
        self, *, environment: Environment, delay_seconds: tuple[float, float] = (0.0005, 0.003)
    ) -> None:
        self.files: dict[str, bytearray] = {}
        self.bytes_max: int | None = None
        """How much fits; None is no bound."""
        self._delay_seconds = delay_seconds
        self._chance = environment.random()

    async def append(self, name: str, buffers: Sequence[Buffer]) -> None:
        whole = b"".join(buffers)
        file = self.files.setdefault(name, bytearray())
        before = len(file)
        room = len(whole)
        if self.bytes_max is not None:
            room = max(0, self.bytes_max - sum(len(found) for found in self.files.values()))
        file += whole[: min(room, len(whole) // 2)]
        await self._wait()
        if room < len(whole):
            raise DiskFailed(f"{name}: no space left for {len(whole)} bytes")
        file[before:] = whole

    async def read(self, name: str) -> bytes:
        file = self.files.get(name)
        if file is None:
            raise DiskFailed(f"{name}: no such file")
        return bytes(file)

    async def names(self) -> list[str]:
        return sorted(self.files)

    async def truncate(self, name: str, size: int) -> None:
        del self.files[name][size:]

    async def delete(self, names: Sequence[str]) -> None:
        await self._wait()
        for name in names:
            self.files.pop(name, None)

    async def close(self) -> None:
        """Nothing is held open."""

    async def _wait(self) -> None:
        low, high = self._delay_seconds
        await asyncio.sleep(low + (high - low) * self._chance.random())
