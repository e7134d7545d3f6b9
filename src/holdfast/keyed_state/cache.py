"""Loaded buckets of this worker process, each with the list of runs that it was made of.

Owns memory only: nothing is kept on disk, so nothing outlives the process. An entry is trusted for
exactly the runs that it names; whether they are the state is for the ledger to say. What an attempt
left here that was never committed names a run that no ledger entry names, and is never used.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from holdfast.keyed_state.pinned import RunInfo

CACHE_BYTES_MAX = 1 << 30

Version = tuple[RunInfo, ...]


class Sized(Protocol):
    """Anything that knows what it weighs."""

    @property
    def nbytes(self) -> int: ...


State = TypeVar("State", bound=Sized)


class Owner(NamedTuple):
    """Whose state it is."""

    store_url: str
    sink_id: str
    bucket: int


@dataclass(frozen=True, slots=True)
class Cached(Generic[State]):
    """A loaded bucket, and the runs that it is made of, oldest first."""

    version: Version
    state: State


class StateCache(Generic[State]):
    """At most `bytes_max` of loaded buckets, the least recently used ones leave first."""

    def __init__(self, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._entries: OrderedDict[Owner, Cached[State]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        return self._bytes

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, owner: Owner) -> Cached[State] | None:
        """What is there; the caller compares its version with the pinned one."""
        with self._lock:
            found = self._entries.get(owner)
            if found is not None:
                self._entries.move_to_end(owner)
            return found

    def put(self, owner: Owner, version: Version, state: State) -> None:
        """Keep it in place of what was there; not at all where it alone is above the bound."""
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
