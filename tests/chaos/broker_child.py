"""The process that chaos kills: `holdfast serve`, warm before it is told to go.

It has imported everything and waits for a reader on a FIFO, so that a kill costs milliseconds
and not the start of an interpreter. `--eager` keeps a broker's background work busy all the time
(snapshots, rewriting, sweeping), so that a random kill falls into it. It changes nothing else.
`--without` takes a protection away: the broker never looks whether a lane is its own, or calls
a batch out of order at once. Such a run must fail.
"""

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

from holdfast.broker.broker import Broker
from holdfast.broker.dispatch import Dispatch
from holdfast.broker.endpoints import SERVED
from holdfast.broker.gaps import Gaps
from holdfast.broker.maintenance import Maintenance
from holdfast.broker.settings import BrokerSettings
from holdfast.cli.server import serve
from holdfast.environment import SystemEnvironment
from holdfast.identifiers import BrokerId
from holdfast.lane.lane import Lane
from holdfast.lane.liveness import ProcFiles
from holdfast.lane.pending import GroupSettings
from holdfast.log.rewriter import RewriteSettings
from holdfast.server.gate import Gate
from holdfast.server.tcp import TcpServer
from holdfast.store.address import open_store

EAGER_REWRITE = RewriteSettings(
    entries_max=60,
    bytes_max=4 << 20,
    runs_max=400,
    segment_bytes_max=1 << 20,
    step_entries_max=20,
    delete_delay_s=0.05,
)


async def serve_eagerly(store_url: str, port: int) -> int:
    """What `holdfast serve` does, with settings that it does not offer."""
    environment = SystemEnvironment()
    store = open_store(store_url, environment=environment)
    gate = Gate()
    server = TcpServer(dispatcher=gate, served=SERVED)
    await server.listen("127.0.0.1", port)
    broker = Broker(
        store=store,
        environment=environment,
        settings=BrokerSettings(
            broker_id=BrokerId(0),
            host="127.0.0.1",
            port=port,
            group=GroupSettings(linger_ms=5),
            rewrite=EAGER_REWRITE,
            snapshot_every=25,
            tail_bytes=4 << 20,
            cache_bytes=4 << 20,
            maintenance_interval_s=0.02,
        ),
        liveness=ProcFiles(os.getpid()),
    )
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    await broker.start()
    maintenance = Maintenance(broker)
    maintenance.start()
    gate.let_brokers_in(Dispatch(broker))
    gate.open()
    print(f"holdfast broker 0 is ready on 127.0.0.1:{port}, eager", flush=True)
    waiter = asyncio.ensure_future(stopping.wait())
    await asyncio.wait({broker.lost, waiter}, return_when=asyncio.FIRST_COMPLETED)
    waiter.cancel()
    lost = broker.lost.result() if broker.lost.done() else None
    await maintenance.stop()
    await server.stop(wait_seconds=1.0)
    await broker.stop(release=lost is None)
    await store.close()
    if lost is not None:
        print(f"holdfast: stopped serving: {lost}", file=sys.stderr, flush=True)
        return 3
    return 0


def trust_claims() -> None:
    """However long ago they were proved."""

    def never_looks(lane: Lane) -> bool:
        return lane.failure is None and not lane._released  # pyright: ignore[reportPrivateUsage]

    Lane.is_valid = never_looks


def call_gaps_at_once() -> None:
    Gaps.judge = lambda self, partition, header, early: early.otherwise


PROTECTIONS = {"claims": trust_claims, "gaps": call_gaps_at_once}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--go", required=True, help="a FIFO; opening it to write starts the broker")
    parser.add_argument("--store", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--without", choices=tuple(PROTECTIONS))
    options, rest = parser.parse_known_args()
    with Path(options.go).open("rb") as go:
        go.read()
    if options.without:
        PROTECTIONS[options.without]()
    if options.eager:
        import uvloop

        sys.exit(uvloop.run(serve_eagerly(options.store, options.port)))
    arguments = ["--store", options.store, "--listen", f"127.0.0.1:{options.port}", *rest]
    serve.command.main(args=arguments, standalone_mode=True)


if __name__ == "__main__":
    main()
