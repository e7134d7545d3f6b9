"""Run one member of a sink from its settings: the store, the connections, the threads, one worker.

Owns opening and closing. Fetches have separate connections: a broker answers one connection in
order, and a heartbeat must not wait behind a fetch that waits for records.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from holdfast.client.cluster import Cluster
from holdfast.environment import Environment, SystemEnvironment
from holdfast.landing.formats.interface import Format
from holdfast.landing.formats.known import new_format
from holdfast.sink.settings import SinkSettings
from holdfast.sink.status import SinkStatus
from holdfast.sink.watched_store import WatchedStore
from holdfast.sink.worker import SinkWorker
from holdfast.store.address import open_store

T = TypeVar("T")

REPORT_S: Final = 0.5
THREADS: Final = 2


async def run_sink(
    settings: SinkSettings,
    *,
    stop: asyncio.Event,
    once: bool = False,
    report: Callable[[SinkStatus], None] | None = None,
    environment: Environment | None = None,
) -> SinkStatus:
    """Run one member until `stop` is set or (`once`) all has landed. Return its last status."""
    environment = environment or SystemEnvironment()
    store = WatchedStore(
        open_store(settings.output.store, environment=environment), environment=environment
    )
    connect = partial(
        Cluster,
        settings.bootstrap,
        environment=environment,
        client_id=settings.member.client_id,
    )
    loop = asyncio.get_running_loop()
    threads = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="holdfast-sink")

    def aside(work: Callable[[], T]) -> asyncio.Future[T]:
        return loop.run_in_executor(threads, work)

    try:
        async with connect() as control, control.sibling() as data:
            worker = SinkWorker(
                settings,
                control=control,
                data=data,
                store=store,
                format=_format(settings),
                environment=environment,
                aside=aside,
            )
            reports = asyncio.ensure_future(_report(worker, report)) if report else None
            try:
                await worker.run(stop, once=once)
            finally:
                if reports is not None:
                    reports.cancel()
                    await asyncio.gather(reports, return_exceptions=True)
            return worker.status()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        await store.close()


def _format(settings: SinkSettings) -> Format:
    output = settings.output
    return new_format(
        output.format,
        layout=output.layout,
        compression=output.compression,
        level=output.level,
        record_bytes_max=settings.limits.record_bytes,
    )


async def _report(worker: SinkWorker, report: Callable[[SinkStatus], None]) -> None:
    while True:
        report(worker.status())
        await asyncio.sleep(REPORT_S)
