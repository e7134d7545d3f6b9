"""Where a task works: which bucket of which sink, in which attempt at which micro-batch.

Owns the name of the one run that the attempt may write. Must never hold state.
"""

from dataclasses import dataclass

from holdfast.environment import Environment
from holdfast.keyed_state.cache import Owner
from holdfast.keyed_state.pinned import run_name
from holdfast.store.interface import Store


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

    @property
    def owner(self) -> Owner:
        return Owner(self.store.url, self.sink_id, self.bucket)

    @property
    def run_name(self) -> str:
        return run_name(self.sink_id, self.bucket, self.number, self.attempt)
