"""Counters of a store: requests, bytes and failures by operation.

Owns the counters only. They are plain integers, which cost next to nothing until they are read.
"""

from collections import Counter
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from holdfast.errors import StoreUnavailable
from holdfast.store.interface import Buffers, CreateAnswer, ObjectEntry, Store

T = TypeVar("T")


class CountingStore:
    """A store that counts its calls and passes them on."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.requests: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.bytes_written = 0
        self.bytes_read = 0

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def is_remote(self) -> bool:
        return self._store.is_remote

    async def _counted(self, operation: str, call: Awaitable[T]) -> T:
        self.requests[operation] += 1
        try:
            return await call
        except StoreUnavailable:
            self.failures[operation] += 1
            raise

    async def create(self, key: str, body: Buffers) -> CreateAnswer:
        self.bytes_written += sum(len(buffer) for buffer in body)
        return await self._counted("create", self._store.create(key, body))

    async def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        data = await self._counted("read", self._store.read(key, start=start, length=length))
        self.bytes_read += len(data)
        return data

    async def size(self, key: str) -> int | None:
        return await self._counted("size", self._store.size(key))

    async def list(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> list[ObjectEntry]:
        return await self._counted("list", self._store.list(prefix, after=after, limit=limit))

    async def delete(self, keys: Sequence[str]) -> None:
        await self._counted("delete", self._store.delete(keys))

    async def close(self) -> None:
        await self._store.close()
