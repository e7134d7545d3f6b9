"""A store that remembers why it does not answer, and since when.

Owns only that note. Code above it keeps trying while a store does not answer. The note shows a
person that it waits, and for what.
"""

from collections.abc import Awaitable, Sequence
from typing import TypeVar

from holdfast.environment import Environment
from holdfast.errors import ObjectNotFound, StoreUnavailable
from holdfast.store.interface import Buffers, CreateAnswer, ObjectEntry, Store

T = TypeVar("T")


class WatchedStore:
    """A store that notes its failures."""

    def __init__(self, store: Store, *, environment: Environment) -> None:
        self._store = store
        self._environment = environment
        self._since: float | None = None
        self.problem: str | None = None
        """The error of the newest failed call; None after a success."""

    @property
    def problem_seconds(self) -> float:
        """Seconds since the first failure after the last success; 0 if nothing fails."""
        return 0.0 if self._since is None else self._environment.monotonic() - self._since

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def is_remote(self) -> bool:
        return self._store.is_remote

    async def _watched(self, call: Awaitable[T]) -> T:
        try:
            answer = await call
        except ObjectNotFound:
            self.problem = self._since = None  # the store has answered
            raise
        except StoreUnavailable as error:
            self.problem = str(error)
            if self._since is None:
                self._since = self._environment.monotonic()
            raise
        self.problem = self._since = None
        return answer

    async def create(self, key: str, body: Buffers) -> CreateAnswer:
        return await self._watched(self._store.create(key, body))

    async def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        return await self._watched(self._store.read(key, start=start, length=length))

    async def size(self, key: str) -> int | None:
        return await self._watched(self._store.size(key))

    async def list(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> list[ObjectEntry]:
        return await self._watched(self._store.list(prefix, after=after, limit=limit))

    async def delete(self, keys: Sequence[str]) -> None:
        await self._watched(self._store.delete(keys))

    async def close(self) -> None:
        await self._store.close()
