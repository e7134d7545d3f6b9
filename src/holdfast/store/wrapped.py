"""A store around another one, which passes every call on.

Owns the passing on only. A subclass overrides what it changes: one call, or `_around` for all of
them. Must never change a call or its answer by itself.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from holdfast.store.interface import Buffers, CreateAnswer, ObjectEntry, Store

T = TypeVar("T")


class WrappedStore:
    """The store inside, as it is."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def is_remote(self) -> bool:
        return self._store.is_remote

    async def _around(self, operation: str, call: Callable[[], Awaitable[T]]) -> T:
        """Make one call of the store inside: create, read, size, list or delete."""
        return await call()

    async def create(self, key: str, body: Buffers) -> CreateAnswer:
        return await self._around("create", lambda: self._store.create(key, body))

    async def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        return await self._around("read", lambda: self._store.read(key, start=start, length=length))

    async def size(self, key: str) -> int | None:
        return await self._around("size", lambda: self._store.size(key))

    async def list(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> list[ObjectEntry]:
        return await self._around(
            "list", lambda: self._store.list(prefix, after=after, limit=limit)
        )

    async def delete(self, keys: Sequence[str]) -> None:
        await self._around("delete", lambda: self._store.delete(keys))

    async def close(self) -> None:
        await self._store.close()
