"""Log lines about a store that does not answer: the first within seconds, then ever fewer.

Owns when such a line is due. Must never log more than one line per pause.
"""

import asyncio
import logging

from holdfast.environment import Environment
from holdfast.store.watch import StoreWatch

LOOK_S = 0.5
FIRST_S = 3.0
"""How long a store may be in trouble before the first line says so."""
PAUSE_S = 10.0
PAUSE_S_MAX = 60.0
"""The pause between two lines about the same trouble doubles from PAUSE_S up to this."""

log = logging.getLogger("holdfast.store")


class StoreWarnings:
    """The log lines about one store: what was logged, and when the next line is due."""

    def __init__(self, store: StoreWatch, *, environment: Environment) -> None:
        self._store = store
        self._environment = environment
        self._next_at: float | None = None
        self._pause_s = PAUSE_S
        self._has_said = False

    async def run(self) -> None:
        """Look at the store every LOOK_S, forever."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        trouble = self._store.trouble()
        now = self._environment.monotonic()
        if trouble is None:
            if self._has_said:
                log.info("store_answers_again store=%s", self._store.url)
            self._next_at, self._pause_s, self._has_said = None, PAUSE_S, False
            return
        if trouble.seconds < FIRST_S or (self._next_at is not None and now < self._next_at):
            return
        log.warning(
            "store_does_not_answer store=%s calls=%s seconds=%d error=%s",
            self._store.url,
            trouble.calls,
            trouble.seconds,
            trouble.error,
        )
        self._has_said = True
        self._next_at = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
