"""The runs that one task writes: several at once, and all durable before it reports.

Owns the writes that are under way. A sync of a disk, or a put over a network, is waiting: buckets
that come next are judged meanwhile. Must never let a task end before `wait`.
"""

from concurrent.futures import Future

from holdfast.environment import Environment
from holdfast.keyed_state.blocking import start_blocking
from holdfast.keyed_state.pinned import RunInfo
from holdfast.keyed_state.run_store import write_run
from holdfast.store.interface import Buffers, Store

AT_ONCE_MAX = 8


class RunWrites:
    """Writes of one task, for one thread."""

    def __init__(self) -> None:
        self._under_way: list[Future[None]] = []

    def start(
        self, store: Store, info: RunInfo, body: Buffers, *, environment: Environment
    ) -> None:
        """Begin to write a run; its name counts only after `wait`."""
        if len(self._under_way) >= AT_ONCE_MAX:
            self._under_way.pop(0).result()
        written = write_run(store, info, body, environment=environment)
        self._under_way.append(start_blocking(written))

    def wait(self) -> None:
        """All runs are durable when this returns; raises where one could not be written."""
        while self._under_way:
            self._under_way.pop(0).result()
