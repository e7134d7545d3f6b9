"""A local directory as a store: the calls of LocalFiles, in threads of their own.

Owns the threads. A disk that stalls holds up this store's threads and nothing else. A cancelled
create may still land, as with any store. Must never block the event loop.
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
    """Objects as files, durable when create says so.

    `sync=False` gives that up, to measure; `anonymous_files=False` does without O_TMPFILE, as some
    file systems must.
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
        """Let objects that are needed take room from the reserve, where there is no other."""
        self._files.keep_reserve(is_needed)

    async def fill_reserve(self) -> None:
        """Have the reserve whole, where there is room for it."""
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
        """Wait for the calls under way, then let go of the threads."""
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
