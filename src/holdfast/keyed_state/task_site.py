"""Where a task works: which bucket of which sink, in which attempt at which micro-batch.

Owns the name of the one run that the attempt may write. Must never hold state.
"""

from dataclasses import dataclass

from holdfast.environment import Environment
from holdfast.keyed_state.blocking import run_blocking
from holdfast.keyed_state.cache import Owner
from holdfast.keyed_state.pinned import RunInfo, run_name
from holdfast.keyed_state.run_store import write_run
from holdfast.keyed_state.run_writes import RunWrites
from holdfast.store.interface import Buffers, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSite:
    """One attempt at one bucket of one micro-batch."""

    store: Store
    sink_id: str
    bucket: int
    number: int
    """The ledger number that the micro-batch is to get."""
    attempt: str
    """Never used twice, not even by a retry of the same task."""
    environment: Environment
    writes: RunWrites | None = None
    """Where runs are written side by side with those of other buckets of the task."""

    def write(self, info: RunInfo, body: Buffers) -> None:
        """Write the run of this attempt; durable when this returns, or when `writes` are."""
        if self.writes is not None:
            self.writes.start(self.store, info, body, environment=self.environment)
        else:
            run_blocking(write_run(self.store, info, body, environment=self.environment))

    @property
    def owner(self) -> Owner:
        return Owner(self.store.url, self.sink_id, self.bucket)

    @property
    def run_name(self) -> str:
        return run_name(self.sink_id, self.bucket, self.number, self.attempt)
