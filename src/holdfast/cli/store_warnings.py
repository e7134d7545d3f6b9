"""Log lines about a store that does not answer: within seconds, then at a modest rate.

Owns when such a line is due. Must never say more than one for each pause.
"""

import asyncio
import logging

from holdfast.environment import Environment
from holdfast.store.watch import StoreWatch

LOOK_S = 0.5
FIRST_S = 3.0
"""How long a store may be in trouble before a line says so."""
PAUSE_S = 10.0
PAUSE_S_MAX = 60.0
"""Between two lines about the same trouble: doubles from the one to the other."""

log = logging.getLogger("holdfast.store")


class StoreWarnings:
    """What has been said of one store."""

    def __init__(self, store: StoreWatch, *, environment: Environment) -> None:
        self._store = store
        self._environment = environment
        self._next_at: float | None = None
        self._pause_s = PAUSE_S
        self._has_said = False

    async def run(self) -> None:
        """Look, for ever."""
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
