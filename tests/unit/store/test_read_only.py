"""A store for reading only: it refuses changes, and does not wait for ever for a silent store."""

from pathlib import Path

import pytest
from tests.support.async_tests import in_event_loop

from holdfast.environment import SeededEnvironment, VirtualClock
from holdfast.errors import CallError, ObjectNotFound, RetryError, StoreUnavailable
from holdfast.store.directory import DirectoryStore
from holdfast.store.interface import Buffers, CreateAnswer, ObjectEntry
from holdfast.store.read_only import DirectoryAsItIs, ReadOnlyStore


class SilentStore:
    """A store that answers to nothing while it is told to be silent."""

    url = "s3://nowhere"
    is_remote = True

    def __init__(self) -> None:
        self.is_silent = True
        self.changed = False

    async def create(self, key: str, body: Buffers) -> CreateAnswer:
        self.changed = True
        return CreateAnswer.CREATED

    async def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        if self.is_silent:
            raise StoreUnavailable("no answer")
        return b"bytes"

    async def size(self, key: str) -> int | None:
        return len(await self.read(key))

    async def list(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> list[ObjectEntry]:
        await self.read(prefix)
        return []

    async def delete(self, keys: object) -> None:
        self.changed = True

    async def close(self) -> None:
        """Nothing to let go of."""


@in_event_loop
async def test_silence_is_borne_for_a_while_and_then_said_with_the_remedy():
    clock = VirtualClock()
    silent = SilentStore()
    store = ReadOnlyStore(silent, environment=SeededEnvironment(seed=1, clock=clock))
    with pytest.raises(StoreUnavailable):
        await store.read("key")
    silent.is_silent = False
    clock.seconds = 15
    assert await store.read("key") == b"bytes"
    silent.is_silent = True
    clock.seconds = 30
    with pytest.raises(StoreUnavailable):
        await store.list("")
    clock.seconds = 51
    with pytest.raises(RetryError, match="s3://nowhere has not answered for 21 s") as raised:
        await store.size("key")
    assert not isinstance(raised.value, StoreUnavailable)


@in_event_loop
async def test_an_hour_in_which_nobody_asked_is_no_silence():
    clock = VirtualClock()
    silent = SilentStore()
    store = ReadOnlyStore(silent, environment=SeededEnvironment(seed=1, clock=clock))
    silent.is_silent = False
    assert await store.read("key") == b"bytes"
    silent.is_silent = True
    clock.seconds = 3_600
    with pytest.raises(StoreUnavailable):
        await store.read("key")


@in_event_loop
async def test_changes_are_refused_before_they_reach_the_store():
    silent = SilentStore()
    environment = SeededEnvironment(seed=1, clock=VirtualClock())
    store = ReadOnlyStore(silent, environment=environment)
    with pytest.raises(CallError):
        await store.create("key", [b""])
    with pytest.raises(CallError):
        await store.delete(["key"])
    assert not silent.changed


@in_event_loop
async def test_a_directory_as_it_is_reads_what_a_directory_store_wrote(tmp_path: Path):
    writer = DirectoryStore(str(tmp_path), sync=False)
    await writer.create("a/b", [b"12", b"345"])
    reader = DirectoryAsItIs(str(tmp_path))
    assert await reader.read("a/b", start=1, length=3) == b"234"
    assert await reader.size("a/b") == 5
    assert [entry.key for entry in await reader.list("a/")] == ["a/b"]
    with pytest.raises(ObjectNotFound):
        await reader.read("a/c")
    for change in (reader.create("a/c", [b""]), reader.delete(["a/b"])):
        with pytest.raises(CallError):
            await change
    assert await writer.size("a/b") == 5
    await reader.close()
    await writer.close()
