"""The place of a task: its store, sink, state bucket, micro-batch and attempt.

Owns the name of the one state run that the attempt may write. Must never hold state.
"""

from dataclasses import dataclass

from holdfast.environment import Environment
from holdfast.keyed_state.cache import CacheOwner
from holdfast.keyed_state.pinned import RunInfo, run_name
from holdfast.keyed_state.run_store import write_run
from holdfast.keyed_state.run_writes import RunWrites
from holdfast.loop_thread import process_loop
from holdfast.store.interface import Buffers, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSite:
    """One attempt at one bucket of one micro-batch."""

    store: Store
    sink_id: str
    bucket: int
    number: int
    """The number of the ledger entry that is to commit the micro-batch."""
    attempt: str
    """An id that is never used twice, not even by a retry of the same task."""
    environment: Environment
    writes: RunWrites | None = None
    """If given, runs are written in parallel with those of the task's other buckets."""

    def write(self, info: RunInfo, body: Buffers) -> None:
        """Write the run of this attempt. It is durable on return, or after `writes.wait()`."""
        if self.writes is not None:
            self.writes.start(self.store, info, body, environment=self.environment)
        else:
            process_loop().run(write_run(self.store, info, body, environment=self.environment))

    @property
    def owner(self) -> CacheOwner:
        return CacheOwner(self.store.url, self.sink_id, self.bucket)

    @property
    def run_name(self) -> str:
        return run_name(self.sink_id, self.bucket, self.number, self.attempt)
