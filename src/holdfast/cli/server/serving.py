"""A broker as a process: it listens, starts, serves, and stops in order.

Owns the order of these steps, and the responses while the broker is still starting. Must never lose
a request between listening and serving.
"""

import asyncio
import contextlib
import dataclasses
import logging
import os
import signal
import sys
from collections.abc import Coroutine, Sequence
from http import HTTPStatus
from typing import Any

import click

from holdfast.broker.broker import Broker
from holdfast.broker.cluster.peer_network import TcpPeers
from holdfast.broker.dispatch import Dispatch
from holdfast.broker.endpoints import SERVED
from holdfast.broker.lanes.claiming import refuse_output
from holdfast.broker.lanes.needed import is_needed_to_serve
from holdfast.broker.maintenance import Maintenance
from holdfast.broker.metrics import BrokerCollector
from holdfast.broker.properties import overridden
from holdfast.broker.settings import BrokerSettings
from holdfast.cli.server.garbage import LongLivedObjects
from holdfast.cli.server.store_warnings import StoreWarnings
from holdfast.client.address import Address, parse_listen
from holdfast.environment import SystemEnvironment
from holdfast.errors import ConfigurationError, HoldfastError, StoreUnavailable
from holdfast.http_listener import Answer, HttpListener, json_answer, live_page, metrics_page
from holdfast.identifiers import BrokerId, LaneId
from holdfast.lane.liveness import ProcFiles
from holdfast.lane.pending import GroupSettings
from holdfast.lane.spool.disk import LocalDisk
from holdfast.server.gate import Gate
from holdfast.server.limits import ServerLimits
from holdfast.server.tcp import TcpServer
from holdfast.store.address import open_store
from holdfast.store.counting import CountingStore
from holdfast.store.directory import DirectoryStore
from holdfast.store.watch import StoreWatch

MIB = 1024 * 1024
REMOTE_LINGER_MS = 100
"""A put to a remote store costs money and tens of milliseconds: wait until a group has gathered."""
LOCAL_LANES = 1
REMOTE_LANES = 4
"""Data lanes of a new store. They hide the latency of a remote store; on a directory each further
lane only makes more and smaller objects (docs/adr/0005-one-lane-on-a-directory.md)."""
SWITCH_INTERVAL_S = 0.000_5
"""How long a thread that returns from disk I/O may wait for the loop to release the interpreter."""
LOCAL_LINGER_MS = 5
LOCAL_LINGER_BYTES_MIN = 16 * 1024
"""A put to a directory waits only if this many bytes are expected within the linger time: each put
costs CPU, so a busy lane waits. A quiet lane answers at once."""
CACHE_SHARE = 5
"""The memory divided by this is for records read back from the store; the rest is for the tail."""
REPLY_SHARE = 2
"""The memory divided by this may be used in addition, for responses that are not sent yet."""

STOP_SECONDS_MAX = 25.0
"""How long a broker may take to stop, whatever the store does. Supervisors commonly kill a process
after 30 s."""
DRAIN_SECONDS_MAX = 12.0
"""How much of STOP_SECONDS_MAX other brokers have to take its lanes. The others are released."""
REPLY_SECONDS_MAX = 10.0
CLOSE_SECONDS_MIN = 10.0
"""How much of STOP_SECONDS_MAX is kept for the last puts and the release."""
STORE_AWAY_EXIT = 4
RESERVE_LOOK_S = 10.0
"""How often the reserve of a directory is checked and refilled."""

log = logging.getLogger("holdfast.serve")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The parsed options of `holdfast serve`."""

    store_url: str
    listen: str
    advertise: str | None
    broker_id: int
    lanes: int | None
    rack: str | None
    linger_ms: int | None
    memory_mib: int
    num_partitions: int
    auto_create_topics: bool
    claim_valid_ms: int
    rejoin_wait_ms: int
    metrics: str | None
    spool: str | None
    overrides: tuple[str, ...]


class Served:
    """A broker, and everything that runs beside it in its process."""

    def __init__(self, options: ServeOptions) -> None:
        self._options = options
        self._environment = SystemEnvironment()
        opened = open_store(options.store_url, environment=self._environment, keeps_trying=False)
        self._directory = opened if isinstance(opened, DirectoryStore) else None
        if self._directory is not None:
            self._directory.keep_reserve(is_needed_to_serve)
        self._watch = StoreWatch(opened, environment=self._environment)
        self._store = CountingStore(self._watch)
        self._disk = LocalDisk(options.spool) if options.spool is not None else None
        self._gate = Gate()
        limits = ServerLimits(reply_bytes_max=options.memory_mib * MIB // REPLY_SHARE)
        self._server = TcpServer(dispatcher=self._gate, served=SERVED, limits=limits)
        self._stopping = asyncio.Event()
        self._has_started = False
        self._background: list[asyncio.Task[None]] = []
        self._long_lived = LongLivedObjects()

    async def run(self) -> int:
        """Serve until a signal comes or the lanes are lost; return the exit code."""
        options = self._options
        host, port = parse_address(options.listen, "--listen")
        port = await self._server.listen(host, port)
        advertised = parse_address(options.advertise or f"{host}:{port}", "--advertise")
        broker = Broker(
            store=self._store,
            environment=self._environment,
            settings=broker_settings(options, advertised, self._store.is_remote),
            liveness=ProcFiles(os.getpid()),
            network=TcpPeers(),
            disk=self._disk,
        )
        http = await self._listen_http(broker)
        self._gate.let_brokers_in(Dispatch(broker))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stopping.set)
        warnings = StoreWarnings(self._watch, environment=self._environment)
        self._spawn(warnings.run())
        self._long_lived.begin()
        broker.served.when_left.append(lambda lane: self._long_lived.lane_left(lane.lane))
        try:
            if not await self._start(broker):
                return 0
            click.echo(
                f"holdfast broker {options.broker_id} is ready on {host}:{port},"
                f" store {self._store.url}"
            )
            sys.stdout.flush()
            return await self._until_the_end(broker)
        finally:
            self._long_lived.end()
            for task in self._background:
                task.cancel()
            if http is not None:
                await http.stop()

    async def _start(self, broker: Broker) -> bool:
        """Start the broker. True if it serves; False if a signal came first."""
        starting = asyncio.ensure_future(self._check_and_start(broker))
        self._spawn(self._gate.open_late(broker))
        await _first(starting, self._stopping)
        if not starting.done():
            starting.cancel()
            return False
        starting.result()
        self._has_started = True
        self._gate.open()
        if self._directory is not None:
            self._spawn(_keep_reserve(self._directory))
        return True

    async def _check_and_start(self, broker: Broker) -> None:
        await refuse_output(self._store, self._environment)
        await broker.start()

    async def _until_the_end(self, broker: Broker) -> int:
        maintenance = Maintenance(broker)
        maintenance.start()
        await _first(broker.lost, self._stopping)
        lost = broker.lost.result() if broker.lost.done() else None
        monotonic = self._environment.monotonic
        deadline = monotonic() + STOP_SECONDS_MAX
        if lost is None:
            await broker.drain(DRAIN_SECONDS_MAX)
        await maintenance.stop()
        left_s = deadline - monotonic() - CLOSE_SECONDS_MIN
        await self._server.stop(wait_seconds=1.0 if lost else min(left_s, REPLY_SECONDS_MAX))
        kept = await broker.stop(
            release=lost is None, patience_s=max(CLOSE_SECONDS_MIN, deadline - monotonic())
        )
        if self._disk is not None:
            await self._disk.close()
        await self._store.close()
        return _say_end(lost, kept)

    async def _listen_http(self, broker: Broker) -> HttpListener | None:
        if self._options.metrics is None:
            return None
        collector = BrokerCollector(broker, self._store)
        pages = {
            "/live": live_page,
            "/ready": lambda: self._ready_page(broker),
            "/metrics": metrics_page(collector, collector.count_groups),
        }
        listen = parse_address(self._options.metrics, "--metrics")
        listener = HttpListener(listen, pages, setting="--metrics")
        await listener.start()
        return listener

    def _ready_page(self, broker: Broker) -> Answer:
        """Return 200 while clients should come here, otherwise 503 with the reason."""
        reason = self._why_not_ready(broker)
        told: dict[str, object] = {"ready": reason is None}
        if reason is not None:
            told["reason"] = reason
        told |= {"broker": self._options.broker_id, "lanes": sorted(broker.report().lanes)}
        status = HTTPStatus.OK if reason is None else HTTPStatus.SERVICE_UNAVAILABLE
        return json_answer(status, told)

    def _why_not_ready(self, broker: Broker) -> str | None:
        if broker.lost.done():
            return f"stopped serving: {broker.lost.result()}"
        if self._stopping.is_set() or broker.is_draining:
            return "draining"
        if self._has_started:
            return None
        trouble = self._watch.trouble()
        return "starting" if trouble is None else f"starting; {trouble.calls}: {trouble.error}"

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._background.append(asyncio.get_running_loop().create_task(work))


async def serve(options: ServeOptions) -> int:
    """Run a broker; return the exit code."""
    return await Served(options).run()


async def _keep_reserve(directory: DirectoryStore) -> None:
    """Refill the reserve, forever. Call this only once the broker serves: a store that it cannot
    serve is left as it is."""
    with contextlib.suppress(StoreUnavailable):  # the store was closed
        while True:
            await directory.fill_reserve()
            await asyncio.sleep(RESERVE_LOOK_S)


def _say_end(lost: HoldfastError | None, kept: Sequence[LaneId]) -> int:
    """Print why the broker ends; return the exit code."""
    if lost is not None:
        click.echo(f"holdfast: stopped serving: {lost}", err=True)
        return 3
    if kept:
        lanes = ", ".join(map(str, kept))
        click.echo(
            f"holdfast: stopped while the store did not answer: lanes {lanes} are not released."
            " No acknowledged record is lost. The next owner of these lanes must wait for"
            " --claim-valid-ms",
            err=True,
        )
        return STORE_AWAY_EXIT
    log.info("stopped")
    return 0


async def _first(future: asyncio.Future[Any], event: asyncio.Event) -> None:
    """Wait for the future or the event, whichever comes first."""
    waiter = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({future, waiter}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiter.cancel()


def broker_settings(
    options: ServeOptions, advertised: tuple[str, int], is_remote: bool
) -> BrokerSettings:
    linger_ms = options.linger_ms
    if linger_ms is None:
        linger_ms = REMOTE_LINGER_MS if is_remote else LOCAL_LINGER_MS
    group = GroupSettings(
        linger_ms=linger_ms,
        linger_bytes_min=0 if is_remote else LOCAL_LINGER_BYTES_MIN,
        claim_valid_ms=options.claim_valid_ms,
    )
    memory = options.memory_mib * MIB
    settings = BrokerSettings(
        broker_id=BrokerId(options.broker_id),
        host=advertised[0],
        port=advertised[1],
        rack=options.rack,
        lanes=options.lanes,
        lanes_of_new_store=REMOTE_LANES if is_remote else LOCAL_LANES,
        auto_create_topics_enable=options.auto_create_topics,
        num_partitions=options.num_partitions,
        group=group,
        tail_bytes=memory - memory // CACHE_SHARE,
        cache_bytes=memory // CACHE_SHARE,
        rejoin_wait_s=options.rejoin_wait_ms / 1000,
    )
    return overridden(settings, options.overrides)


def parse_address(text: str, option: str) -> Address:
    """Parse HOST:PORT, or [::1]:9092, from an option."""
    try:
        return parse_listen(text)
    except ConfigurationError as wrong:
        raise ConfigurationError(f"{option} {wrong}") from wrong
