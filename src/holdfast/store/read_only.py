"""A read-only view of a store, for inspection beside a broker or without one.

Owns the refusal of every change, and the limit of waiting for a store that never answers. Must
never create a directory, nor remove anything from one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from holdfast.addresses import scheme_of
from holdfast.environment import Environment
from holdfast.errors import (
    CallError,
    ConfigurationError,
    ObjectNotFound,
    RetryError,
    StoreUnavailable,
)
from holdfast.store.address import file_path, open_store
from holdfast.store.interface import Buffers, CreateAnswer, ObjectEntry, Store
from holdfast.store.keys import check_key, check_prefix
from holdfast.store.local_files import LocalFiles
from holdfast.store.wrapped import WrappedStore

T = TypeVar("T")

SILENCE_S_MAX = 20.0
"""After this long without an answer, a person gets an error instead of waiting on."""


class _FilesAsTheyAre(LocalFiles):
    """The files of a directory that another process created."""

    def _make_root(self) -> None:
        if not self._root.is_dir():
            raise ConfigurationError(
                f"there is no directory {str(self._root)!r}: name the one that"
                " `holdfast serve --store` was given, or the one that a sink or a pipeline writes"
            )

    def _remove_left_overs(self) -> None:
        """Do nothing: only the owner of the directory removes them."""


class DirectoryAsItIs:
    """A directory store without its side effects; `create` and `delete` are refused."""

    is_remote = False

    def __init__(self, path: str) -> None:
        self.url = path
        self._files = _FilesAsTheyAre(path)

    async def create(self, key: str, body: Buffers) -> CreateAnswer:
        raise _refusal("create", key)

    async def delete(self, keys: Sequence[str]) -> None:
        raise _refusal("delete", ", ".join(keys))

    async def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        check_key(key)
        return await asyncio.to_thread(self._files.read, key, start, length)

    async def size(self, key: str) -> int | None:
        check_key(key)
        return await asyncio.to_thread(self._files.size, key)

    async def list(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> list[ObjectEntry]:
        check_prefix(prefix)
        return await asyncio.to_thread(self._files.list, prefix, after, limit)

    async def close(self) -> None:
        self._files.close()


class ReadOnlyStore(WrappedStore):
    """Any store, without create and delete, and with a limit of waiting for it."""

    def __init__(
        self, store: Store, *, environment: Environment, silence_s_max: float = SILENCE_S_MAX
    ) -> None:
        super().__init__(store)
        self._environment = environment
        self._silence_s_max = silence_s_max
        self._silent_since: float | None = None

    async def create(self, key: str, body: Buffers) -> CreateAnswer:
        raise _refusal("create", key)

    async def delete(self, keys: Sequence[str]) -> None:
        raise _refusal("delete", ", ".join(keys))

    async def _around(self, operation: str, call: Callable[[], Awaitable[T]]) -> T:
        try:
            answer = await call()
        except ObjectNotFound:
            self._silent_since = None
            raise
        except StoreUnavailable as error:
            # Counted from the first failed call: an hour without calls is not silence.
            now = self._environment.monotonic()
            self._silent_since = now if self._silent_since is None else self._silent_since
            silent_s = now - self._silent_since
            if silent_s < self._silence_s_max:
                raise
            raise RetryError(
                f"the store {self.url} has not answered for {silent_s:.0f} s: {error}; check the"
                " address, the credentials and the network"
            ) from error
        self._silent_since = None
        return answer


def open_read_only(
    url: str, *, environment: Environment, silence_s_max: float = SILENCE_S_MAX
) -> ReadOnlyStore:
    """Return a read-only view of the store at an address. A directory must exist already."""
    scheme = scheme_of(url)
    store: Store
    if scheme == "memory":
        raise ConfigurationError(
            "only the broker itself can read a store in memory (memory://): use a store on a"
            " directory or bucket"
        )
    if scheme == "file":
        store = DirectoryAsItIs(file_path(url))
    elif url.strip() and not scheme:
        store = DirectoryAsItIs(str(Path(url).expanduser()))
    else:
        store = open_store(url, environment=environment)
    return ReadOnlyStore(store, environment=environment, silence_s_max=silence_s_max)


def _refusal(operation: str, what: str) -> CallError:
    return CallError(f"{operation} of {what[:200]!r}: this store was opened for reading only")
