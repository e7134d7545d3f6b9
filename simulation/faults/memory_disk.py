"""A simulated disk: crashes, a full disk, and the time that each call takes.

It ships with Holdfast for simulations and tests. Half of a write is in the file while the write is
under way, so a process that ends meanwhile leaves a torn tail. Must never report a write as durable
that is not.
"""

import asyncio
from collections.abc import Sequence

from holdfast.environment import Environment
from holdfast.lane.entry import Buffer
from holdfast.lane.spool.disk import DiskFailed


class MemoryDisk:
    """One disk of one machine. It keeps its files when a process is killed."""

    def __init__(
        self, *, environment: Environment, delay_seconds: tuple[float, float] = (0.0005, 0.003)
    ) -> None:
        self.files: dict[str, bytearray] = {}
        self.bytes_max: int | None = None
        """The capacity in bytes; None if it is unlimited."""
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

    async def delete(self, names: Sequence[str]) -> None:
        await self._wait()
        for name in names:
            self.files.pop(name, None)

    async def close(self) -> None:
        """Do nothing: no file is held open."""

    async def _wait(self) -> None:
        low, high = self._delay_seconds
        await asyncio.sleep(low + (high - low) * self._chance.random())
