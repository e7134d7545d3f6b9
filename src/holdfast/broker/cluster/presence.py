"""Reports that a broker leaves in the store for brokers that do not hear it.

Owns the objects `presence/<broker>/<number>`, and when they are written and looked for: only while
a registered broker is not heard. A report that is new since the last look shows that its broker is
alive. Nothing here is needed for safety: it only decides which brokers try to own a lane. Must
never wait long for the store.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

from holdfast.cluster.peers import PeerReport
from holdfast.environment import Environment
from holdfast.errors import NOT_JSON, HoldfastError, ObjectNotFound
from holdfast.identifiers import BrokerId
from holdfast.store.interface import Store

log = logging.getLogger("holdfast.cluster")

PREFIX = "presence/"
LEAVE_INTERVAL_S = 10.0
"""How often a report is left."""
LOOK_INTERVAL_S = 5.0
LOOK_AT_FIRST_S = 1.0
"""How often reports are looked for just after a broker was missed."""
AT_FIRST_S = 10.0
LOOK_IDLE_S = 60.0
"""How often reports are looked for if a broker was missed for long and leaves none. That broker may
be gone for good."""
SEARCH_S = 60.0
"""How long reports are left for a broker that leaves none itself."""
CALL_S_MAX = 5.0


class Sighting(NamedTuple):
    """A report that was not there at the last look."""

    report: PeerReport
    is_first: bool
    """True if no report of this broker was seen before. Then this one may be old."""


class Exchange(NamedTuple):
    """The result of one look."""

    news: Sequence[Sighting]
    present: Collection[BrokerId]
    """The brokers that have a report in the store."""


class Presence:
    """The reports that one broker leaves in the store, and those that it finds there."""

    def __init__(self, store: Store, environment: Environment, broker_id: BrokerId) -> None:
        self.looked_at = float("-inf")
        """When the last look began that the store has answered."""
        self._store = store
        self._environment = environment
        self._own_id = broker_id
        self._missed: frozenset[BrokerId] = frozenset()
        self._missed_at = float("-inf")
        """When a broker was last added to the missed ones."""
        self._sign_at = float("-inf")
        """When a new report of a broker that is not heard was last found in the store."""
        self._tried_at = float("-inf")
        self._left_at = float("-inf")
        self._left_number = 0
        self._left_lanes: object = None
        self._leaving: str | None = None
        """The key of a report whose put has an unknown outcome. The same key is tried again."""
        self._own_keys: list[str] = []
        self._seen: dict[BrokerId, int] = {}

    def miss(self, brokers: Collection[BrokerId]) -> None:
        """Set the registered brokers that are not heard now."""
        if not self._missed.issuperset(brokers):
            self._missed_at = self._environment.monotonic()
        self._missed = frozenset(brokers)

    def is_due(self, own: PeerReport) -> bool:
        """True if there is a report to leave, to look for, or to delete."""
        since = self._environment.monotonic() - self._tried_at
        if not self._missed:
            return bool(self._own_keys) and since >= LOOK_INTERVAL_S
        interval_s = LOOK_AT_FIRST_S if self._has_news(own) else self._interval_s()
        return since >= interval_s

    def _has_news(self, own: PeerReport) -> bool:
        """True if this broker's lanes are not those of the report that it left."""
        is_left = self._left_at > float("-inf") and self._is_searching()
        return is_left and _lanes_of(own) != self._left_lanes

    def _interval_s(self) -> float:
        if self._environment.monotonic() - self._missed_at < AT_FIRST_S:
            return LOOK_AT_FIRST_S
        return LOOK_INTERVAL_S if self._is_searching() else LOOK_IDLE_S

    def _is_searching(self) -> bool:
        now = self._environment.monotonic()
        return now - max(self._missed_at, self._sign_at) < SEARCH_S

    async def exchange(self, own: PeerReport, heard: Collection[BrokerId]) -> Exchange | None:
        """Look for the reports of others, and leave one if it is due.

        Return None if there was nothing to look for, or if the store did not answer.
        """
        self._tried_at = began = self._environment.monotonic()
        found: Exchange | None = None
        try:
            async with asyncio.timeout(CALL_S_MAX):
                if not self._missed:
                    await self._clear()
                    return None
                found = await self._look()
                self.looked_at = began
                if any(sighting.report.broker_id not in heard for sighting in found.news):
                    self._sign_at = began
                is_old = self._is_searching() and began - self._left_at >= LEAVE_INTERVAL_S
                if is_old or self._has_news(own):
                    await self._leave(own)
        except (HoldfastError, TimeoutError) as error:
            log.info("presence_not_exchanged error=%s", error or "the store did not answer in time")
        return found

    async def _leave(self, own: PeerReport) -> None:
        if self._leaving is None:
            # The clock makes the numbers of later processes greater. Nothing else relies on it.
            self._left_number = max(self._left_number + 1, self._environment.now_ms())
            self._leaving = f"{PREFIX}{self._own_id}/{self._left_number:020d}"
            self._own_keys.append(self._leaving)
        key = self._leaving
        await self._store.create(key, [msgspec.json.encode(own)])
        self._leaving = None
        self._left_at, self._left_lanes = self._environment.monotonic(), _lanes_of(own)
        older = [each for each in self._own_keys if each != key]
        if older:
            await self._store.delete(older)
            self._own_keys = [key]

    async def _look(self) -> Exchange:
        newest: dict[BrokerId, tuple[int, str]] = {}
        for entry in await self._store.list(PREFIX):
            broker_id, number = _parse(entry.key)
            if broker_id == self._own_id:
                is_older = number < self._left_number and entry.key not in self._own_keys
                self._own_keys += [entry.key] if is_older else []  # of an earlier process
            elif broker_id is not None:
                newest[broker_id] = max(newest.get(broker_id, (-1, "")), (number, entry.key))
        news: list[Sighting] = []
        for broker_id, (number, key) in newest.items():
            if number > self._seen.get(broker_id, -1):
                report = await self._read(key)
                if report is not None and report.broker_id == broker_id:
                    news.append(Sighting(report, is_first=broker_id not in self._seen))
                    self._seen[broker_id] = number
        return Exchange(news, newest.keys())

    async def _read(self, key: str) -> PeerReport | None:
        """Return a report, or None if it was replaced in the meantime or is not a report."""
        try:
            return msgspec.json.decode(await self._store.read(key), type=PeerReport)
        except (ObjectNotFound, *NOT_JSON):
            return None

    async def _clear(self) -> None:
        if self._own_keys:
            await self._store.delete(self._own_keys)
            self._own_keys, self._leaving = [], None
            self._left_at = float("-inf")

    async def stop(self) -> None:
        """Delete this broker's report. A broker that finds it gone need not wait."""
        try:
            async with asyncio.timeout(CALL_S_MAX):
                await self._clear()
        except (HoldfastError, TimeoutError) as error:
            log.info("presence_not_cleared error=%s", error or "the store did not answer in time")


def _lanes_of(report: PeerReport) -> object:
    return dict(report.lanes), set(report.coming), report.is_draining


def _parse(key: str) -> tuple[BrokerId | None, int]:
    """Return the broker and the number in a key, or (None, -1) if the object is not one of ours."""
    broker, _, number = key.removeprefix(PREFIX).partition("/")
    if not (broker.isascii() and broker.isdigit() and number.isascii() and number.isdigit()):
        return None, -1
    return BrokerId(int(broker)), int(number)
