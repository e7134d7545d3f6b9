"""A store that notes which of its calls fail or hang now, for how long, and why.

Owns that note. The code above waits patiently for a store that does not answer; the note tells a
person what waits, and why. Reads and writes are noted separately, because a full disk can still be
read. Must never change a call or its answer.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from holdfast.environment import Environment
from holdfast.errors import ObjectNotFound, StoreUnavailable
from holdfast.store.interface import Store
from holdfast.store.wrapped import WrappedStore

T = TypeVar("T")

READS = "reads"
WRITES = "writes"
FRESH_S = 30.0
"""A failure is over if it does not repeat for this long: a caller that waits retries sooner."""
SLOW_S = 3.0
"""A call without an answer for this long counts as trouble."""


class StoreTrouble(NamedTuple):
    """The failing or hanging calls of one kind."""

    calls: str
    seconds: float
    error: str


class _Kind:
    """The state of all reads, or of all writes."""

    def __init__(self) -> None:
        self.under_way: dict[int, float] = {}
        """The start time of each call that has no answer yet."""
        self.since: float | None = None
        """The start of the first call that failed after the last good answer; None if none did."""
        self.failed_at = 0.0
        self.error = ""


class StoreWatch(WrappedStore):
    """A store whose creates and reads are watched."""

    def __init__(self, store: Store, *, environment: Environment) -> None:
        super().__init__(store)
        self._environment = environment
        self._kinds = {READS: _Kind(), WRITES: _Kind()}
        self._calls = 0

    def trouble(self) -> StoreTrouble | None:
        """Return the kind of calls that fails or hangs now; of two, the one in longer trouble."""
        now = self._environment.monotonic()
        found = [self._trouble_of(name, kind, now) for name, kind in self._kinds.items()]
        return max((each for each in found if each is not None), key=_seconds, default=None)

    def _trouble_of(self, name: str, kind: _Kind, now: float) -> StoreTrouble | None:
        oldest = min(kind.under_way.values(), default=now)
        is_slow = now - oldest >= SLOW_S
        if kind.since is not None and (is_slow or now - kind.failed_at < FRESH_S):
            return StoreTrouble(name, now - kind.since, kind.error)
        return StoreTrouble(name, now - oldest, "no answer yet") if is_slow else None

    async def _around(self, operation: str, call: Callable[[], Awaitable[T]]) -> T:
        if operation == "delete":
            return await call()
        kind = self._kinds[WRITES if operation == "create" else READS]
        self._calls += 1
        number = self._calls
        kind.under_way[number] = begun = self._environment.monotonic()
        try:
            answer = await call()
        except ObjectNotFound:
            kind.since = None  # this is a good answer, too
            raise
        except StoreUnavailable as error:
            kind.failed_at = self._environment.monotonic()
            kind.error = str(error)
            kind.since = begun if kind.since is None else kind.since
            raise
        finally:
            del kind.under_way[number]
        kind.since = None
        return answer


def _seconds(trouble: StoreTrouble) -> float:
    return trouble.seconds
