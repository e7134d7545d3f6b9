"""The I/O of one process: the connections that live on its loop thread.

Owns stores, followers and clusters, each opened once for its address and kept as long as the
process lives, because Spark reuses its Python workers. Must never be shared across a fork: a forked
child makes its own.
"""

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from holdfast.client.cluster import Cluster
from holdfast.environment import SystemEnvironment
from holdfast.follow.follower import StoreFollower
from holdfast.loop_thread import process_loop
from holdfast.spark.source.kafka_options import ClientOptions, tls_context
from holdfast.store.address import open_store
from holdfast.store.interface import Store
from holdfast.store.read_only import open_read_only

T = TypeVar("T")

STORE_SILENCE_S_MAX = 60.0
"""How long a store may be silent before a task fails, and Spark tries it again."""
CLOSE_S_MAX = 2.0


class WorkerIO:
    """The loop thread of the process, and the connections that live on it."""

    def __init__(self) -> None:
        self.environment = SystemEnvironment()
        self._loop = process_loop()
        self._stores: dict[str, Store] = {}
        self._writable: dict[str, Store] = {}
        self._followers: dict[str, StoreFollower] = {}
        self._clusters: dict[ClientOptions, Cluster] = {}

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start a coroutine on the loop."""
        return self._loop.submit(work)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for its result."""
        return self._loop.run(work)

    def close(self) -> None:
        """Close what is open and end the loop, without waiting long for what does not answer."""
        with contextlib.suppress(Exception):
            self.submit(self._close_all()).result(CLOSE_S_MAX)
        self._loop.stop()

    async def _close_all(self) -> None:
        opened = [*self._clusters.values(), *self._stores.values(), *self._writable.values()]
        await asyncio.gather(*(one.close() for one in opened), return_exceptions=True)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def store(self, url: str) -> Store:
        """Return the store at an address, for reading."""
        store = self._stores.get(url)
        if store is None:
            store = open_read_only(
                url, environment=self.environment, silence_s_max=STORE_SILENCE_S_MAX
            )
            self._stores[url] = store
        return store

    def writable(self, url: str) -> Store:
        """Return the store at an address, for writing."""
        store = self._writable.get(url)
        if store is None:
            store = self._writable[url] = open_store(url, environment=self.environment)
        return store

    def follower(self, url: str) -> StoreFollower:
        """Return the follower that tasks of this process share if their plan no longer holds."""
        follower = self._followers.get(url)
        if follower is None:
            follower = self.new_follower(url)
            self._followers[url] = follower
        return follower

    def new_follower(self, url: str) -> StoreFollower:
        return StoreFollower(self.store(url), environment=self.environment)

    def cluster(self, options: ClientOptions) -> Cluster:
        """Return the connections to a cluster."""
        cluster = self._clusters.get(options)
        if cluster is None:
            cluster = Cluster(
                options.bootstrap,
                environment=self.environment,
                client_id=options.client_id,
                request_timeout_ms=options.request_timeout_ms,
                deadline_ms=options.deadline_ms,
                tls=tls_context(options.tls) if options.tls is not None else None,
            )
            self._clusters[options] = cluster
        return cluster


_workers: dict[int, WorkerIO] = {}
_making = threading.Lock()


def worker() -> WorkerIO:
    """Return the worker of this process."""
    with _making:
        found = _workers.get(os.getpid())
        if found is None:
            found = _workers[os.getpid()] = WorkerIO()
            # Otherwise Python reports open connections as lost tasks when it ends.
            atexit.register(_close_at_exit, os.getpid())
        return found


def _close_at_exit(process_id: int) -> None:
    found = _workers.get(process_id)
    if found is not None and process_id == os.getpid():
        found.close()
