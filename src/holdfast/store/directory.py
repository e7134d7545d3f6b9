"""A local directory as a store: the calls of LocalFiles, run in separate threads.

Owns the threads. A disk that stalls holds up this store's threads and nothing else. A cancelled
create may still take effect, as with any store. Must never block the event loop.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from holdfast.errors import StoreUnavailable
from holdfast.store.interface import Buffers, CreateAnswer, ObjectEntry
from holdfast.store.keys import check_key, check_prefix
from holdfast.store.local_files import LocalFiles
from holdfast.store.reserve import IsNeeded

THREADS_DEFAULT = 8

P = ParamSpec("P")
T = TypeVar("T")


class DirectoryStore:
    """A store of files, which are durable when `create` returns.

    `sync=False` gives up durability, for measurements. `anonymous_files=False` does without
    O_TMPFILE, which some file systems lack.
    """

    def __init__(
        self,
        path: str,
        *,
        threads: int = THREADS_DEFAULT,
        sync: bool = True,
        anonymous_files: bool = True,
    ) -> None:
        self._path = path
        self._files = LocalFiles(path, sync=sync, anonymous_files=anonymous_files)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="holdfast-directory")
        self._is_closed = False

    @property
    def url(self) -> str:
        return self._path

    @property
    def is_remote(self) -> bool:
        return False

    def keep_reserve(self, is_needed: IsNeeded) -> None:
        """Let needed objects take room from the reserve if the disk is full."""
        self._files.keep_reserve(is_needed)

    async def fill_reserve(self) -> None:
        """Fill the reserve if the disk has room for it."""
        await self._call(self._files.fill_reserve)

    async def create(self, key: str, body: Buffers) -> CreateAnswer:
        check_key(key)
        return await self._call(self._files.create, key, body)

    async def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        check_key(key)
        return await self._call(self._files.read, key, start, length)

    async def size(self, key: str) -> int | None:
        check_key(key)
        return await self._call(self._files.size, key)

    async def list(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> list[ObjectEntry]:
        check_prefix(prefix)
        return await self._call(self._files.list, prefix, after, limit)

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            check_key(key)
        await self._call(self._files.delete, tuple(keys))

    async def close(self) -> None:
        """Wait for the calls under way, then stop the threads."""
        if self._is_closed:
            return
        self._is_closed = True
        await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)
        self._files.close()

    async def _call(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._is_closed:
            raise StoreUnavailable(f"the store {self._path!r} is closed")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: call(*args, **kwargs))
