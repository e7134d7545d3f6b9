"""Counters of a store: requests, bytes and failures by operation.

Owns the counters only. They are plain integers, which cost next to nothing until they are read.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast.errors import StoreUnavailable
from holdfast.store.interface import Buffers, CreateAnswer, Store
from holdfast.store.wrapped import WrappedStore

T = TypeVar("T")


class CountingStore(WrappedStore):
    """A store that counts its calls and passes them on."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.requests: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.bytes_written = 0
        self.bytes_read = 0

    async def _around(self, operation: str, call: Callable[[], Awaitable[T]]) -> T:
        self.requests[operation] += 1
        try:
            return await call()
        except StoreUnavailable:
            self.failures[operation] += 1
            raise

    async def create(self, key: str, body: Buffers) -> CreateAnswer:
        self.bytes_written += sum(len(buffer) for buffer in body)
        return await super().create(key, body)

    async def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        data = await super().read(key, start=start, length=length)
        self.bytes_read += len(data)
        return data
