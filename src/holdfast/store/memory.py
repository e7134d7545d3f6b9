"""A store in memory: deterministic, without threads; for trials, tests and the simulation.

Owns the objects for as long as the process lives. It is the reference for the other stores: one
winner per key, listings in byte order of the whole key, and effects that every caller sees at once.
Must never answer without yielding to the event loop first, because no real store does.
"""

import asyncio
import bisect
from collections.abc import Sequence

from holdfast.environment import Environment
from holdfast.errors import ObjectNotFound
from holdfast.store.interface import Buffers, CreateAnswer, ObjectEntry
from holdfast.store.keys import check_key, check_prefix


class MemoryStore:
    """A store in a dict. Closing it keeps the objects, so that a restarted broker finds them."""

    def __init__(self, *, environment: Environment, url: str = "memory://") -> None:
        self._environment = environment
        self._url = url
        self._bodies: dict[str, bytes] = {}
        self._modified_ms: dict[str, int] = {}
        self._keys: list[str] = []

    @property
    def url(self) -> str:
        return self._url

    @property
    def is_remote(self) -> bool:
        return False

    async def create(self, key: str, body: Buffers) -> CreateAnswer:
        check_key(key)
        await asyncio.sleep(0)
        if key in self._bodies:
            return CreateAnswer.EXISTS
        self._bodies[key] = b"".join(body)
        self._modified_ms[key] = self._environment.now_ms()
        bisect.insort(self._keys, key)
        return CreateAnswer.CREATED

    async def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        check_key(key)
        await asyncio.sleep(0)
        body = self._bodies.get(key)
        if body is None:
            raise ObjectNotFound(f"there is no object {key!r} in {self._url}")
        if length is None:
            return body[start:]
        return body[start : start + max(0, length)]

    async def size(self, key: str) -> int | None:
        check_key(key)
        await asyncio.sleep(0)
        body = self._bodies.get(key)
        return None if body is None else len(body)

    async def list(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> list[ObjectEntry]:
        check_prefix(prefix)
        await asyncio.sleep(0)
        first = max(bisect.bisect_left(self._keys, prefix), bisect.bisect_right(self._keys, after))
        entries: list[ObjectEntry] = []
        for position in range(first, len(self._keys)):
            key = self._keys[position]
            if not key.startswith(prefix) or (limit is not None and len(entries) >= limit):
                break
            entries.append(ObjectEntry(key, len(self._bodies[key]), self._modified_ms[key]))
        return entries

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            check_key(key)
        await asyncio.sleep(0)
        for key in keys:
            if self._bodies.pop(key, None) is not None:
                del self._modified_ms[key]
                del self._keys[bisect.bisect_left(self._keys, key)]

    async def close(self) -> None:
        """Do nothing: the objects stay."""
