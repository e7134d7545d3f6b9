"""Brokers for tests, on `memory://` and a free port: in a thread, or in a separate process.

Owns their start and their end, both within a time limit. It is the broker that `holdfast serve`
runs, with nothing replaced. Must never touch signals or the event loop of the caller.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import IO

from holdfast.broker.broker import Broker
from holdfast.broker.cluster.peer_network import TcpPeers
from holdfast.broker.dispatch import Dispatch
from holdfast.broker.endpoints import SERVED
from holdfast.broker.maintenance import Maintenance
from holdfast.broker.properties import overridden
from holdfast.broker.settings import BrokerSettings
from holdfast.environment import SystemEnvironment
from holdfast.errors import RetryError
from holdfast.identifiers import BrokerId
from holdfast.lane.liveness import ProcFiles
from holdfast.lane.pending import GroupSettings
from holdfast.loop_thread import new_event_loop
from holdfast.server.gate import Gate
from holdfast.server.tcp import TcpServer
from holdfast.store.address import open_store

HOST = "127.0.0.1"
STORE = "memory://"
START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 10.0
SETTINGS: Mapping[str, str] = {"group.initial.rebalance.delay.ms": "0"}
"""Overrides for tests. By default a new group waits 3 s for further members; a test need not."""
SERVE = "from holdfast.cli.main import main; main()"
READY = " is ready on "
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningBroker:
    """A broker that is ready for clients."""

    host: str
    port: int

    @property
    def bootstrap_servers(self) -> str:
        """The value of bootstrap.servers for any Kafka client."""
        return f"{self.host}:{self.port}"


class BrokerNotReady(RetryError):
    """A broker for tests did not start or end within its time limit."""


@contextlib.contextmanager
def broker(
    *,
    process: bool = False,
    num_partitions: int = 1,
    auto_create_topics: bool = True,
    settings: Mapping[str, str] | None = None,
) -> Generator[RunningBroker]:
    """Run a broker until the block ends; its records are gone afterwards.

    It runs in a thread of this process or, with `process=True`, in a separate process, for a test
    that keeps the interpreter busy. `num_partitions` is for topics that are created on their first
    use. `settings` are those of `holdfast serve --override`, by Kafka's names.
    """
    overrides = tuple(f"{name}={value}" for name, value in {**SETTINGS, **(settings or {})}.items())
    wanted = _Wanted(num_partitions, auto_create_topics, overrides)
    with _in_process(wanted) if process else _in_thread(wanted) as port:
        yield RunningBroker(host=HOST, port=port)


@dataclass(frozen=True, slots=True)
class _Wanted:
    num_partitions: int
    auto_create_topics: bool
    overrides: tuple[str, ...]


@contextlib.contextmanager
def _in_thread(wanted: _Wanted) -> Generator[int]:
    ready: Future[int] = Future()
    stopping = threading.Event()
    loops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def live() -> None:
        stop = asyncio.Event()
        loops.append((asyncio.get_running_loop(), stop))
        if not stopping.is_set():
            await _serve(wanted, ready, stop)

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(live())
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    thread = threading.Thread(target=run, name="holdfast-broker", daemon=True)
    thread.start()
    try:
        yield ready.result(START_SECONDS_MAX)
    finally:
        stopping.set()
        for loop, stop in loops:
            with contextlib.suppress(RuntimeError):  # the loop has ended by itself
                loop.call_soon_threadsafe(stop.set)
        thread.join(STOP_SECONDS_MAX)
    if thread.is_alive():
        raise BrokerNotReady(f"the broker for tests did not end within {STOP_SECONDS_MAX:.0f} s")


async def _serve(wanted: _Wanted, ready: "Future[int]", stop: asyncio.Event) -> None:
    environment = SystemEnvironment()
    store = open_store(STORE, environment=environment)
    gate = Gate()
    server = TcpServer(dispatcher=gate, served=SERVED)
    port = await server.listen(HOST, 0)
    running = Broker(
        store=store,
        environment=environment,
        settings=_settings(wanted, port),
        liveness=ProcFiles(os.getpid()),
        network=TcpPeers(),
    )
    gate.let_brokers_in(Dispatch(running))
    await running.start()
    maintenance = Maintenance(running)
    maintenance.start()
    gate.open()
    ready.set_result(port)
    await stop.wait()
    await maintenance.stop()
    await server.stop(wait_seconds=1.0)
    await running.stop(release=True)
    await store.close()


def _settings(wanted: _Wanted, port: int) -> BrokerSettings:
    settings = BrokerSettings(
        broker_id=BrokerId(0),
        host=HOST,
        port=port,
        auto_create_topics_enable=wanted.auto_create_topics,
        num_partitions=wanted.num_partitions,
        group=GroupSettings(linger_ms=0),
        tail_bytes=64 * MIB,
        cache_bytes=16 * MIB,
    )
    return overridden(settings, wanted.overrides)


@contextlib.contextmanager
def _in_process(wanted: _Wanted) -> Generator[int]:
    create = "--auto-create-topics" if wanted.auto_create_topics else "--no-auto-create-topics"
    arguments = ["serve", "--store", STORE, "--listen", f"{HOST}:0", "--memory", "80", create]
    arguments += ["--linger-ms", "0", "--num-partitions", str(wanted.num_partitions)]
    arguments += [word for text in wanted.overrides for word in ("--override", text)]
    with tempfile.TemporaryFile("w+") as log:
        child = subprocess.Popen(
            [sys.executable, "-c", SERVE, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            yield _port_of(child, log)
        finally:
            child.terminate()
            try:
                child.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            if child.stdout is not None:
                child.stdout.close()


def _port_of(child: "subprocess.Popen[str]", log: IO[str]) -> int:
    """Wait until the broker prints that it is ready; return its port. The error has its log."""
    watchdog = threading.Timer(START_SECONDS_MAX, child.kill)
    watchdog.start()
    try:
        for line in child.stdout or ():
            if READY in line:
                return int(line.partition(READY)[2].partition(",")[0].rpartition(":")[2])
    finally:
        watchdog.cancel()
    child.wait()
    log.seek(0)
    raise BrokerNotReady(
        f"the broker for tests ended with {child.returncode}: {log.read()[-2000:]}"
    )
