"""Producers of three families, a follower and observers on a log, whatever happens to its brokers.

Owns the load, its end, and the comparison with what a process reads that never saw the log before.
"""

import asyncio
import gc
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Protocol

from tests.chaos import observers as observed
from tests.chaos.cold_read import ColdPartition, read_cold
from tests.chaos.families import FAMILIES, SHARE, TOPIC, Family, Follower
from tests.chaos.ledger import Ledger, check_cold
from tests.chaos.observers import Observers
from tests.chaos.stores import ChaosStore
from tests.peers.process import PeerFailed, wait_until
from tests.support.warm_broker import ChaosBroker

from holdfast.client import admin
from holdfast.client.cluster import Cluster
from holdfast.environment import SystemEnvironment
from holdfast.verify.checkers import check
from holdfast.verify.history import ColdLog, Outcome

PARTITIONS = 6
FOLLOWER_SECONDS_MAX = 120.0
STILL_SECONDS_MAX = 180.0
"""Longer than any fault, or several of them, can keep a partition from a consumer."""
ACK_SECONDS_MAX = 60.0


class LoadFigures(Protocol):
    """What a run under load tells of it."""

    sent: int
    acked: int
    acked_by: dict[str, int]
    unknown: int
    errors_told: dict[str, int]
    history_calls: int
    history_ok: int
    followed: int
    truncation_alarms: int
    followers_wedged: int
    epoch_ends_told: int
    cold_records: int
    downtime_ms: list[float]
    seconds: float
    problems: list[str]


class UnderLoad:
    """One log, and all who use it."""

    def __init__(
        self, bootstrap: str, figures: LoadFigures, *, seed: int, per_second: float
    ) -> None:
        self.bootstrap = bootstrap
        self.configs: dict[str, dict[str, str]] = {}
        """Of the topics, by name."""
        self._told = figures
        self.ledger = Ledger(producers=list(FAMILIES), partitions=PARTITIONS)
        self._harmed_at: float | None = None
        self.families: list[Family] = [
            FAMILIES[name](self.ledger, number, bootstrap, per_second * SHARE[name])
            for number, name in enumerate(FAMILIES)
        ]
        self.follower = Follower(bootstrap, TOPIC, PARTITIONS)
        self.observers = Observers(
            bootstrap, self.ledger, seed=seed, polled_topic=TOPIC, pause_s=0.06
        )

    def begin_load(self) -> None:
        asyncio.run(_create_topics(self.bootstrap, self.configs))
        for thread in (*self.families, self.follower, self.observers):
            thread.start()
        self.wait_for_ack(time.monotonic())

    def harmed(self) -> None:
        """Something was done to a broker: from now on the next ack is waited for."""
        gc.freeze()  # the history lives to the end: looking at all of it again takes seconds
        self._harmed_at = time.monotonic()

    def wait_for_ack(self, since: float) -> None:
        try:
            wait_until(
                lambda: self.ledger.last_ack_at > since,
                seconds_max=ACK_SECONDS_MAX,
                what="the next ack",
            )
        except PeerFailed as failure:
            self._told.problems.append(f"not live: {failure}")
        if self._harmed_at is not None:
            self._told.downtime_ms.append((self.ledger.last_ack_at - self._harmed_at) * 1000)
            self._harmed_at = None

    def is_stuck(self) -> bool:
        """Whether a client stands still that should not: there is no use in going on then."""
        seconds = self.follower.still_seconds()
        if seconds < STILL_SECONDS_MAX:
            return False
        self._told.problems.append(
            f"not live: for {seconds:.0f} s nothing of a partition has come to the follower; "
            + self.follower.state()
        )
        return True

    def finish_load(self) -> None:
        """Let all that is under way end."""
        for family in self.families:
            family.stopping.set()
        for family in self.families:
            family.join(150)
            if family.is_alive() or family.in_flight:
                self._told.problems.append(f"not live: {family.name} still waits for its acks")
        self.observers.stopping.set()
        self.observers.join(60)
        ends = [self.ledger.acked_end(p) for p in range(PARTITIONS)]
        try:
            wait_until(
                lambda: (
                    bool(self.follower.problems)
                    or all(len(s) >= e for s, e in zip(self.follower.seen, ends, strict=True))
                ),
                seconds_max=FOLLOWER_SECONDS_MAX,
                what="the follower catches up",
            )
        except PeerFailed as failure:
            behind = [f"{len(s)} of {e}" for s, e in zip(self.follower.seen, ends, strict=True)]
            self._told.problems.append(
                f"not live: {failure}: it has {', '.join(behind)}; {self.follower.state()}"
            )
        self.follower.stopping.set()
        self.follower.join(30)

    def compare(self, store: ChaosStore, reader: ChaosBroker) -> None:
        """Read the store back through a process that never saw it."""
        reader.go()
        try:
            reader.wait_ready()
            bootstrap = f"127.0.0.1:{reader.port}"
            families = read_cold(bootstrap, TOPIC, PARTITIONS)
            own = read_cold(bootstrap, observed.TOPIC, observed.PARTITIONS)
        finally:
            reader.process.stop()
        problems = self._told.problems
        problems += self.ledger.problems + self.follower.problems + self.observers.problems
        for partition, cold in enumerate(families):
            problems += cold.problems + check_cold(self.ledger, partition, cold.identities)
            seen = self.follower.seen[partition]
            if seen != cold.identities[: len(seen)]:
                problems.append(f"{TOPIC}/{partition}: the follower saw other records")
        problems += self._check_history(families, own)
        problems += verify_store(store)
        self._told.cold_records = sum(len(c.identities) for c in (*families, *own))

    def _check_history(self, families: list[ColdPartition], own: list[ColdPartition]) -> list[str]:
        history = self.observers.recorder.history
        for partition, cold in enumerate(families):
            history.cold[f"{TOPIC}/{partition}"] = ColdLog((), 0, cold.end)
        problems: list[str] = []
        for partition, cold in enumerate(own):
            problems += cold.problems
            records = tuple(enumerate(cold.identities))
            history.cold[f"{observed.TOPIC}/{partition}"] = ColdLog(records, 0, cold.end)
        self._told.history_calls = len(history.calls)
        self._told.history_ok = sum(call.outcome is Outcome.OK for call in history.calls)
        return problems + [str(violation) for violation in check(history)]

    def tell(self, begun: float) -> None:
        figures, ledger = self._told, self.ledger
        figures.sent, figures.acked = ledger.sent, ledger.acked_count
        figures.acked_by = dict(zip(ledger.producers, ledger.acks, strict=True))
        figures.unknown = ledger.sent - ledger.acked_count
        figures.errors_told = dict(ledger.refused)
        figures.followed = sum(map(len, self.follower.seen))
        figures.truncation_alarms = self.follower.alarms
        figures.followers_wedged = self.follower.wedged
        figures.epoch_ends_told = self.observers.ends_told
        figures.seconds = round(time.monotonic() - begun, 1)


async def _create_topics(bootstrap: str, configs: dict[str, dict[str, str]]) -> None:
    async with Cluster(bootstrap, environment=SystemEnvironment()) as cluster:
        await admin.create_topics(
            cluster,
            [
                admin.NewTopic(name, partitions, configs=configs.get(name, {}))
                for name, partitions in (
                    (TOPIC, PARTITIONS),
                    (observed.TOPIC, observed.PARTITIONS),
                )
            ],
        )


def verify_store(store: ChaosStore) -> list[str]:
    """What `holdfast inspect --verify` says of every byte."""
    command = [str(Path(sys.executable).parent / "holdfast"), "inspect", "--verify", "--json"]
    told = subprocess.run(
        [*command, "--store", store.url],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, **store.variables},
    )
    return [] if told.returncode == 0 else [f"inspect --verify: {told.stdout} {told.stderr}"[:2000]]
