"""`holdfast serve`: run a broker until it is told to stop, or another one takes its lanes."""

import asyncio
import dataclasses
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import click
from prometheus_client import CollectorRegistry, start_http_server

from holdfast.broker.broker import Broker
from holdfast.broker.dispatch import SERVED, Dispatch
from holdfast.broker.maintenance import Maintenance
from holdfast.broker.metrics import BrokerCollector
from holdfast.broker.peer_network import TcpPeers
from holdfast.broker.properties import overridden
from holdfast.broker.settings import BrokerSettings
from holdfast.cli.loop import run_loop
from holdfast.client.address import Address, parse_listen
from holdfast.environment import SystemEnvironment
from holdfast.errors import ConfigurationError, HoldfastError
from holdfast.identifiers import BrokerId
from holdfast.lane.appender import GroupSettings
from holdfast.lane.liveness import ProcFiles
from holdfast.lane.spool.disk import LocalDisk
from holdfast.protocol.api import BETWEEN_BROKERS
from holdfast.protocol.connection import Reply, Request
from holdfast.server.peer import Peer
from holdfast.server.tcp import TcpServer
from holdfast.store.address import open_store
from holdfast.store.counting import CountingStore

MIB = 1024 * 1024
REMOTE_LINGER_MS = 100
"""A put to a remote store costs money and tens of milliseconds: let a group gather."""
LOCAL_LANES = 1
REMOTE_LANES = 4
"""Of a new store. Lanes hide the latency of a remote store; on a directory each one more only makes
more and smaller objects (docs/adr/0005-one-lane-on-a-directory.md)."""
SWITCH_INTERVAL_S = 0.000_5
"""How long the loop may keep a thread that comes back from the disk waiting for the interpreter."""
LOCAL_LINGER_MS = 5
LOCAL_LINGER_BYTES_MIN = 16 * 1024
"""On a directory only a busy lane lingers: each put costs CPU, and a quiet one wants its answer."""
CACHE_SHARE = 5
"""One part in so many of the memory is for what is read back; the rest is for the tail."""

DRAIN_SECONDS_MAX = 30.0
"""How long a broker that stops waits for others to take its lanes."""

log = logging.getLogger("holdfast.serve")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The command line, read."""

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


def _option(*names: str, **settings: Any) -> Callable[[Any], Any]:
    settings.setdefault("show_default", True)
    return click.option(*names, **settings)


@click.command()
@_option(
    "--store", "store_url", required=True, help="A directory, s3://, gs://, az:// or memory://."
)
@_option("--listen", default="127.0.0.1:9092", help="HOST:PORT for clients; port 0 picks one.")
@_option("--advertise", help="HOST:PORT that clients are told, where it is not --listen.")
@_option("--id", "broker_id", default=0, type=click.IntRange(0), help="This broker's node id.")
@_option(
    "--lanes",
    type=click.IntRange(1, 1000),
    help="Data lanes of a new store (else 1 on a directory, 4 on a remote store).",
)
@_option("--rack", help="broker.rack")
@_option(
    "--linger-ms",
    type=click.IntRange(0, 60_000),
    help="Longest time records gather before a put (else 5 on a directory, 100 on a remote store).",
)
@_option(
    "--memory",
    "memory_mib",
    default=640,
    type=click.IntRange(16),
    help="MiB for the newest records and for what is read back.",
)
@_option("--num-partitions", default=1, type=click.IntRange(1, 10_000), help="num.partitions")
@_option(
    "--auto-create-topics/--no-auto-create-topics", default=True, help="auto.create.topics.enable"
)
@_option(
    "--claim-valid-ms",
    default=5_000,
    type=click.IntRange(100, 600_000),
    help="How long an answer may rely on the last look at the claim.",
)
@_option(
    "--rejoin-wait-ms",
    default=10_000,
    type=click.IntRange(0, 600_000),
    help="How long a broker that was restarted leaves lanes with the brokers that serve them: by"
    " then clients try to reach it again (their reconnect.backoff.max.ms).",
)
@_option("--metrics", help="HOST:PORT for Prometheus.")
@_option(
    "--spool",
    help="A directory on a local disk, for topics with holdfast.ack=disk. Keep it: until a flush it"
    " holds records that are nowhere else.",
)
@_option(
    "--override",
    "overrides",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of groups or transactions by Kafka's name, as in"
    " group.initial.rebalance.delay.ms=0; may be repeated.",
)
@_option("--log-level", default="INFO", type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"]))
def command(log_level: str, **options: Any) -> None:
    """Run one broker.

    Prints one line when it is ready. SIGTERM and SIGINT stop it cleanly: what was accepted is
    answered, and its lanes are released, so that the next broker serves at once.
    """
    logging.basicConfig(
        level=log_level,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
    )
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    sys.exit(run_loop(_serve(ServeOptions(**options))))


class Gate:
    """Lets clients connect while the broker still starts: their requests wait, and none is lost.

    Listening comes first, so that a port in use is found out before anybody's lanes are claimed.
    """

    def __init__(self) -> None:
        self._dispatch: asyncio.Future[Dispatch] = asyncio.get_running_loop().create_future()
        self._opened = asyncio.Event()

    def let_brokers_in(self, dispatch: Dispatch) -> None:
        """Answer other brokers: two that start at once must hear each other."""
        self._dispatch.set_result(dispatch)

    def open(self) -> None:
        self._opened.set()

    def dispatch(self, request: Request, peer: Peer) -> Reply | Awaitable[Reply]:
        is_open = self._opened.is_set() or request.api_key in BETWEEN_BROKERS
        if self._dispatch.done() and is_open:
            return self._dispatch.result().dispatch(request, peer)
        return self._later(request, peer)

    async def _later(self, request: Request, peer: Peer) -> Reply:
        dispatch = await asyncio.shield(self._dispatch)
        if request.api_key not in BETWEEN_BROKERS:
            await self._opened.wait()
        reply = dispatch.dispatch(request, peer)
        return await reply if isinstance(reply, Awaitable) else reply

    def disconnected(self, peer: Peer) -> None:
        if self._dispatch.done():
            self._dispatch.result().disconnected(peer)


async def _serve(options: ServeOptions) -> int:
    host, port = parse_address(options.listen, "--listen")
    environment = SystemEnvironment()
    store = CountingStore(
        open_store(options.store_url, environment=environment, keeps_trying=False)
    )
    disk = LocalDisk(options.spool) if options.spool is not None else None
    gate = Gate()
    server = TcpServer(dispatcher=gate, served=SERVED)
    port = await server.listen(host, port)
    advertised = parse_address(options.advertise or f"{host}:{port}", "--advertise")
    broker = Broker(
        store=store,
        environment=environment,
        settings=_settings(options, advertised, store.is_remote),
        liveness=ProcFiles(os.getpid()),
        network=TcpPeers(),
        disk=disk,
    )
    gate.let_brokers_in(Dispatch(broker))
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    starting = asyncio.ensure_future(broker.start())
    await _first(starting, stopping)
    if not starting.done():
        starting.cancel()
        return 0
    starting.result()
    maintenance = Maintenance(broker)
    maintenance.start()
    gate.open()
    if options.metrics is not None:
        registry = CollectorRegistry()
        registry.register(BrokerCollector(broker, store))
        metrics_host, metrics_port = parse_address(options.metrics, "--metrics")
        start_http_server(metrics_port, metrics_host, registry)
    click.echo(f"holdfast broker {options.broker_id} is ready on {host}:{port}, store {store.url}")
    sys.stdout.flush()
    await _first(broker.lost, stopping)
    lost = broker.lost.result() if broker.lost.done() else None
    if lost is None:
        await broker.drain(DRAIN_SECONDS_MAX)
    await maintenance.stop()
    await server.stop(wait_seconds=1.0 if lost else 10.0)
    await broker.stop(release=lost is None)
    if disk is not None:
        await disk.close()
    await store.close()
    return _say_lost(lost)


def _say_lost(lost: HoldfastError | None) -> int:
    if lost is None:
        log.info("stopped")
        return 0
    click.echo(f"holdfast: stopped serving: {lost}", err=True)
    return 3


async def _first(future: asyncio.Future[Any], event: asyncio.Event) -> None:
    """Wait for either."""
    waiter = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({future, waiter}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiter.cancel()


def _settings(
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
    """HOST:PORT of an option, also [::1]:9092."""
    try:
        return parse_listen(text)
    except ConfigurationError as wrong:
        raise ConfigurationError(f"{option} {wrong}") from wrong
