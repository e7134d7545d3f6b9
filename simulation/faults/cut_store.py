"""One process's access to the store, which can be cut while other processes keep theirs.

Owns nothing but the cut. A call that is in progress when the cut comes still takes effect; only its
answer is lost.
"""

from collections.abc import Sequence

from holdfast.errors import StoreUnavailable
from holdfast.store.interface import Buffers, CreateAnswer, ObjectEntry, Store


class CutStore:
    """One process's view of the store."""

    def __init__(self, store: Store) -> None:
        self.is_cut = False
        self._store = store

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def is_remote(self) -> bool:
        return self._store.is_remote

    def heal(self) -> None:
        self.is_cut = False

    async def create(self, key: str, body: Buffers) -> CreateAnswer:
        self._check()
        answer = await self._store.create(key, body)
        self._check()
        return answer

    async def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        self._check()
        data = await self._store.read(key, start=start, length=length)
        self._check()
        return data

    async def size(self, key: str) -> int | None:
        self._check()
        size = await self._store.size(key)
        self._check()
        return size

    async def list(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> list[ObjectEntry]:
        self._check()
        entries = await self._store.list(prefix, after=after, limit=limit)
        self._check()
        return entries

    async def delete(self, keys: Sequence[str]) -> None:
        self._check()
        await self._store.delete(keys)
        self._check()

    async def close(self) -> None:
        await self._store.close()

    def _check(self) -> None:
        if self.is_cut:
            raise StoreUnavailable("injected: this process is cut off from the store")
