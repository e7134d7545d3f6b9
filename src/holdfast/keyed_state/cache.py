"""Loaded state buckets of this worker process, each with the list of state runs it was made of.

Owns memory only: nothing is kept on disk, so nothing outlives the process. A cached bucket is valid
for exactly the runs that it names. Only the ledger says whether they are the state. A bucket of an
attempt that was never committed names a run that no ledger entry names. It must never be used.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from holdfast.keyed_state.pinned import RunInfo

CACHE_BYTES_MAX = 1 << 30

Version = tuple[RunInfo, ...]


class Sized(Protocol):
    """Any state that knows its size in memory."""

    @property
    def nbytes(self) -> int: ...


State = TypeVar("State", bound=Sized)


class CacheOwner(NamedTuple):
    """The store, sink and bucket that a cached state belongs to."""

    store_url: str
    sink_id: str
    bucket: int


@dataclass(frozen=True, slots=True)
class Cached(Generic[State]):
    """A loaded bucket, and the runs that it was made of, oldest first."""

    version: Version
    state: State


class StateCache(Generic[State]):
    """At most `bytes_max` bytes of loaded buckets.

    The least recently used ones are dropped first.
    """

    def __init__(self, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._entries: OrderedDict[CacheOwner, Cached[State]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        return self._bytes

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, owner: CacheOwner) -> Cached[State] | None:
        """Return the cached bucket, if any. The caller compares its version with the pinned one."""
        with self._lock:
            found = self._entries.get(owner)
            if found is not None:
                self._entries.move_to_end(owner)
            return found

    def put(self, owner: CacheOwner, version: Version, state: State) -> None:
        """Replace the cached bucket. One that is larger than the whole cache is not kept."""
        with self._lock:
            before = self._entries.pop(owner, None)
            if before is not None:
                self._bytes -= before.state.nbytes
            if state.nbytes > self._bytes_max:
                return
            self._entries[owner] = Cached(version, state)
            self._bytes += state.nbytes
            while self._bytes > self._bytes_max:
                _, oldest = self._entries.popitem(last=False)
                self._bytes -= oldest.state.nbytes
