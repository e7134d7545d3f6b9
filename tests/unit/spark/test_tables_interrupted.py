"""A driver that is cut off at any call to the store, and a machine without the table libraries."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.ledgered import SparkInThisProcess, rows
from tests.unit.spark.followed import Crash, World

from holdfast.landing.ledger import Ledger
from holdfast.spark.ledger.compact import compact
from holdfast.spark.runtime.worker import worker
from holdfast.store.interface import Buffers, CreateAnswer, ObjectEntry, Store


class CutStore:
    """Any store, until so many calls were made: then the process is gone, before or after one."""

    def __init__(self, store: Store, calls: int, *, after: bool) -> None:
        self._store = store
        self._left = calls
        self._after = after
        self.url = store.url
        self.is_remote = store.is_remote

    async def _call(self, work: Any) -> Any:
        self._left -= 1
        if self._left < 0 and not self._after:
            work.close()
            raise Crash
        done = await work
        if self._left < 0:
            raise Crash
        return done

    async def create(self, key: str, body: Buffers) -> CreateAnswer:
        return await self._call(self._store.create(key, body))

    async def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        return await self._call(self._store.read(key, start=start, length=length))

    async def size(self, key: str) -> int | None:
        return await self._call(self._store.size(key))

    async def list(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> list[ObjectEntry]:
        return await self._call(self._store.list(prefix, after=after, limit=limit))

    async def delete(self, keys: Sequence[str]) -> None:
        await self._call(self._store.delete(keys))

    async def close(self) -> None:
        """The store is the worker's."""


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("after", [False, True])
def test_a_driver_that_is_cut_off_at_any_call_to_the_store_doubles_and_loses_nothing(
    tmp_path: Path, kind: str, after: bool
):
    world = World(kind, tmp_path)
    here = worker()

    def cut_off(calls: int) -> bool:
        store = CutStore(here.writable(world.sink.url), calls, after=after)
        try:
            ledger = here.run(Ledger.open(store, "orders", environment=here.environment))
            world.follower().catch_up(ledger)
        except Crash:
            return True
        return False

    crashes = 0
    for calls in range(60):
        world.sink.commit(rows(f"r{calls}"))
        if calls % 4 == 3:
            compact(SparkInThisProcess(), world.sink.url, "orders")
        if not cut_off(calls):
            break
        crashes += 1
        if crashes % 5 == 0:
            world.follower().catch_up(world.sink.ledger())
    else:
        pytest.fail("it never came to its end")
    assert crashes >= 5
    world.follower().catch_up(world.sink.ledger())
    assert world.ids() == world.sink.ids()
    assert set(world.ids().values()) == {1}


@pytest.mark.parametrize(
    ("missing", "made", "extra"),
    [
        ("deltalake", "DeltaTable()", "holdfast[delta]"),
        ("pyiceberg", "IcebergTable('a.b')", "holdfast[iceberg]"),
    ],
)
def test_without_the_library_the_error_says_what_to_install(missing: str, made: str, extra: str):
    script = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from holdfast.errors import ConfigurationError\n"
        "from holdfast.spark.tables import DeltaTable, IcebergTable\n"
        f"try: {made}\n"
        "except ConfigurationError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
    )
    assert f"needs an extra: pip install '{extra}'" in done.stdout
