"""A store that obeys hooks: calls that are held, counted or made to fail at a chosen key."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from holdfast.errors import StoreUnavailable
from holdfast.store.interface import Buffers, CreateAnswer, ObjectEntry, Store

Hook = Callable[[str, str], Awaitable[None]]


async def out_of_reach(operation: str, key: str) -> None:
    """A hook: no call has an answer."""
    raise StoreUnavailable(f"{operation} {key}")


class HookedStore:
    """Another store, with hooks before and after the effect of each call."""

    def __init__(self, store: Store) -> None:
        self.inner = store
        self.before: list[Hook] = []
        self.after: list[Hook] = []
        self.calls: list[tuple[str, str]] = []

    @property
    def url(self) -> str:
        return self.inner.url

    @property
    def is_remote(self) -> bool:
        return False

    async def _around(self, operation: str, key: str, call: Callable[[], Awaitable[Any]]) -> Any:
        self.calls.append((operation, key))
        for hook in list(self.before):
            await hook(operation, key)
        answer = await call()
        for hook in list(self.after):
            await hook(operation, key)
        return answer

    async def create(self, key: str, body: Buffers) -> CreateAnswer:
        return await self._around("create", key, lambda: self.inner.create(key, body))

    async def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        return await self._around(
            "read", key, lambda: self.inner.read(key, start=start, length=length)
        )

    async def size(self, key: str) -> int | None:
        return await self._around("size", key, lambda: self.inner.size(key))

    async def list(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> list[ObjectEntry]:
        return await self._around(
            "list", prefix, lambda: self.inner.list(prefix, after=after, limit=limit)
        )

    async def delete(self, keys: Sequence[str]) -> None:
        await self._around("delete", ",".join(keys), lambda: self.inner.delete(keys))

    async def close(self) -> None:
        await self.inner.close()


class Hold:
    """A hook that stops the calls it matches until it is let go."""

    def __init__(self, operation: str, key_part: str) -> None:
        self.reached = asyncio.Event()
        self.go = asyncio.Event()
        self._operation = operation
        self._key_part = key_part

    async def __call__(self, operation: str, key: str) -> None:
        if operation == self._operation and self._key_part in key:
            self.reached.set()
            await self.go.wait()
