"""A store that remembers why it does not answer, and since when.

Owns only that note. Code above it keeps trying while a store does not answer. The note shows a
person that it waits, and for what.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast.environment import Environment
from holdfast.errors import ObjectNotFound, StoreUnavailable
from holdfast.store.interface import Store
from holdfast.store.wrapped import WrappedStore

T = TypeVar("T")


class WatchedStore(WrappedStore):
    """A store that notes its failures."""

    def __init__(self, store: Store, *, environment: Environment) -> None:
        super().__init__(store)
        self._environment = environment
        self._since: float | None = None
        self.problem: str | None = None
        """The error of the newest failed call; None after a success."""

    @property
    def problem_seconds(self) -> float:
        """Seconds since the first failure after the last success; 0 if nothing fails."""
        return 0.0 if self._since is None else self._environment.monotonic() - self._since

    async def _around(self, operation: str, call: Callable[[], Awaitable[T]]) -> T:
        try:
            answer = await call()
        except ObjectNotFound:
            self.problem = self._since = None  # the store has answered
            raise
        except StoreUnavailable as error:
            self.problem = str(error)
            if self._since is None:
                self._since = self._environment.monotonic()
            raise
        self.problem = self._since = None
        return answer
