"""The state runs that one task writes: several in parallel, and all durable before it reports.

Owns the writes that are under way. While a write waits for a disk or the network, the task judges
the next buckets. A task must never end before `wait` returns.
"""

from concurrent.futures import Future

from holdfast.environment import Environment
from holdfast.keyed_state.pinned import RunInfo
from holdfast.keyed_state.run_store import write_run
from holdfast.loop_thread import process_loop
from holdfast.store.interface import Buffers, Store

AT_ONCE_MAX = 8


class RunWrites:
    """The writes of one task, used by one thread."""

    def __init__(self) -> None:
        self._under_way: list[Future[None]] = []

    def start(
        self, store: Store, info: RunInfo, body: Buffers, *, environment: Environment
    ) -> None:
        """Begin to write a run. Its name may be reported only after `wait`."""
        if len(self._under_way) >= AT_ONCE_MAX:
            self._under_way.pop(0).result()
        written = write_run(store, info, body, environment=environment)
        self._under_way.append(process_loop().submit(written))

    def wait(self) -> None:
        """Wait until all runs are durable. Raises if one could not be written."""
        while self._under_way:
            self._under_way.pop(0).result()
