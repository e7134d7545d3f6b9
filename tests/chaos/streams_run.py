"""One Streams application and its broker, or three, killed again and again; the check at the end.

Owns the processes, the kills and the figures of a run. Which is killed when is decided elsewhere
(streams_kills); what the output must be, too (streams_oracle).
"""

import asyncio
import dataclasses
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.chaos.spark_feed import Feed
from tests.chaos.stores import ChaosStore
from tests.chaos.streams_app import PARTITIONS, StreamsApp
from tests.chaos.streams_oracle import (
    Seen,
    check_counts,
    check_dedup,
    check_followed,
    check_input,
)
from tests.chaos.streams_readers import Follower, read_whole, survey
from tests.chaos.under_load import verify_store
from tests.peers.holdfast import HoldfastBroker
from tests.peers.holdfast_cluster import LANES_COME_BACK_AT_ONCE, HoldfastCluster
from tests.peers.kafka import KafkaBroker
from tests.peers.process import PeerFailed, Process, wait_until

from holdfast.client import admin
from holdfast.client.cluster import Cluster
from holdfast.environment import SystemEnvironment

INPUT_PARTITIONS = 3
BACK_SECONDS_MAX = 120.0
DRAIN_SECONDS_MAX = 240.0
POINT_SECONDS_MAX = 30.0
PAUSE_S = 12.0
"""A transaction of Streams may last for 10 s, a member without an instance id be silent for 6."""


class TurningBroker(HoldfastBroker):
    """`holdfast serve`; every second one is busy with snapshots and rewriting all the time."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        self._launches = 0

    def launch(self) -> None:
        self._launches += 1
        if self._launches % 2 == 1:
            super().launch()
            return
        command = [sys.executable, "-m", "tests.chaos.broker_child", "--go", "/dev/null"]
        command += ["--store", self.store, "--port", str(self.port), "--eager"]
        self._process = Process(
            command, log=self.folder / "holdfast.log", environment=self.variables
        )


class TurningCluster(HoldfastCluster):
    """Three brokers, of which one at a time is killed, in turn: the others go on with its lanes."""

    def __init__(self, folder: Path, *, lanes: int, store: ChaosStore) -> None:
        super().__init__(
            folder,
            lanes=lanes,
            store=store.url,
            arguments=LANES_COME_BACK_AT_ONCE,
            variables=store.variables,
        )
        self._turn = 0

    def kill(self) -> None:
        self._turn = self._turn % len(self.brokers) + 1
        self.brokers[self._turn].kill()

    def start(self) -> "TurningCluster":
        """Those that do not run."""
        for broker in self.brokers.values():
            if not broker.is_running:
                broker.start()
        return self


@dataclasses.dataclass(slots=True, kw_only=True)
class Figures:
    """What a run did, and what it found."""

    kills: int = 0
    by_point: Counter[str] = dataclasses.field(default_factory=Counter)
    missed: int = 0
    """Points that were not reached in time; the kill came anyway."""
    app_starts: int = 0
    broker_starts: int = 0
    app_said: dict[str, int] = dataclasses.field(default_factory=dict)
    restored: int = 0
    records: int = 0
    ids: int = 0
    rows: int = 0
    rows_uncommitted: int = 0
    aborted_rows: int = 0
    """Of both output topics. A transaction may also be aborted before it wrote to either."""
    committed: int = 0
    aborted: int = 0
    back_ms: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    """From a kill to the next record that a reader of committed ones sees, by what was killed."""
    seconds: float = 0.0
    uncommitted_problems: list[str] = dataclasses.field(default_factory=list)
    """What the same oracle says of a reader that does not ask for committed records."""
    problems: list[str] = dataclasses.field(default_factory=list)

    def summary(self) -> dict[str, object]:
        shown = dataclasses.asdict(self)
        shown["by_point"] = dict(self.by_point)
        shown["back_ms"] = {
            who: {"median": round(statistics.median(times)), "max": round(max(times))}
            for who, times in self.back_ms.items()
        }
        return shown


class Run:
    """From an empty broker to the verdict."""

    def __init__(
        self,
        folder: Path,
        broker: HoldfastBroker | TurningCluster | KafkaBroker,
        *,
        seed: int,
        settings: Mapping[str, str],
        per_second: float,
    ) -> None:
        self.broker = broker
        self.chance = random.Random(seed)
        self.figures = Figures()
        self.app = StreamsApp(folder / "app", broker.bootstrap, name="dedup", settings=settings)
        self._begun = time.monotonic()
        self._per_second = per_second
        self._seed = seed
        self._killed_at: float | None = None
        self._killed: list[str] = []

    def begin(self) -> None:
        name = self.app.name
        self._start_broker()
        topics = {f"{name}-out": PARTITIONS, f"{name}-counts": PARTITIONS}
        asyncio.run(_create(self.broker.bootstrap, {f"{name}-in": INPUT_PARTITIONS, **topics}))
        self.feed = Feed(
            self.broker.bootstrap,
            f"{name}-in",
            INPUT_PARTITIONS,
            per_second=self._per_second,
            seed=self._seed,
        )
        self.follower = Follower(self.broker.bootstrap, topics)
        self.feed.start()
        self.follower.start()
        self.app.launch()
        self._killed_at, self._killed = time.monotonic(), ["first start"]
        self.come_back()

    def _start_broker(self) -> None:
        self.figures.broker_starts += 1
        self.broker.start()

    def kill(self, target: str, point: str) -> None:
        """Wait for the point, kill, start again what was killed; `come_back` is for the caller."""
        if point.startswith(("hold ", "pass ")):
            reached = self.app.reach(point, seconds_max=POINT_SECONDS_MAX)
            self.figures.missed += not reached
        if self._killed_at is None:
            self._killed_at, self._killed = time.monotonic(), []
        self._killed.append(target)
        hits_app, hits_broker = target != "broker", target in ("broker", "both")
        if hits_broker:
            self.broker.kill()
        if hits_app:
            self.app.kill()
        self.figures.kills += hits_app + hits_broker
        self.figures.by_point[f"{target}: {point}"] += 1
        if target == "app elsewhere":
            self.app.lose_state()
        if hits_app:
            self.app.launch()
        if hits_broker:
            self._start_broker()

    def pause(self, point: str) -> None:
        """Let the application stand still for longer than its transactions may last."""
        reached = self.app.reach(point, seconds_max=POINT_SECONDS_MAX)
        self.figures.missed += not reached
        self._killed_at, self._killed = time.monotonic(), ["paused"]
        self.app.pause(PAUSE_S)
        self.figures.by_point[f"app paused: {point}"] += 1

    def come_back(self) -> bool:
        """Wait until new output is committed."""
        if self._killed_at is None:
            return True
        # What was committed before the kill may reach the reader after it.
        since = max(self._killed_at + 0.2, time.monotonic())
        try:
            wait_until(
                lambda: self.follower.last_at > since,
                seconds_max=BACK_SECONDS_MAX,
                what=f"output after the kill of {self._killed}",
            )
        except PeerFailed as failure:
            self.figures.problems.append(f"not live: {failure}")
            return False
        took_ms = (self.follower.last_at - self._killed_at) * 1000
        who = self._killed[0] if len(self._killed) == 1 else "several in a row"
        self.figures.back_ms.setdefault(who, []).append(took_ms)
        self._killed_at = None
        return True

    def finish(self) -> None:
        """All that was sent is processed; then both end cleanly, and a fresh broker is read."""
        self.feed.stop()
        wanted = len(self.feed.acked)
        ids = {name for name, _ in self.feed.acked.values()}
        counted = self.follower.seen[f"{self.app.name}-counts"]
        output = self.follower.seen[f"{self.app.name}-out"]
        try:
            wait_until(
                lambda: len(counted) >= wanted and len({seen.key for seen in output}) >= len(ids),
                seconds_max=DRAIN_SECONDS_MAX,
                what=f"all {wanted} records are counted",
            )
        except PeerFailed as failure:
            self.figures.problems.append(f"not live: {failure}, but {len(counted)}")
        self.app.stop()
        self.follower.stop()
        self.broker.stop()
        self.broker.start()

    def check(self) -> Figures:
        figures, name, bootstrap = self.figures, self.app.name, self.broker.bootstrap

        def read(topic: str, partitions: int, *, committed: bool = True) -> list[Seen]:
            return read_whole(bootstrap, f"{name}-{topic}", partitions, committed=committed)

        log = read("in", INPUT_PARTITIONS)
        output, counts = read("out", PARTITIONS), read("counts", PARTITIONS)
        raw = read("out", PARTITIONS, committed=False)
        raw_counts = read("counts", PARTITIONS, committed=False)
        surveyed = asyncio.run(survey(bootstrap, name))
        figures.problems += self.feed.problems + self.follower.problems + surveyed.problems
        figures.problems += check_input(log, self.feed.acked)
        figures.problems += check_dedup(log, output) + check_counts(log, counts)
        figures.problems += check_followed(self.follower.seen[f"{name}-out"], output)
        figures.problems += check_followed(self.follower.seen[f"{name}-counts"], counts)
        figures.uncommitted_problems = check_dedup(log, raw) + check_counts(log, raw_counts)
        self.broker.stop()
        if not isinstance(self.broker, KafkaBroker):
            store = ChaosStore(self.broker.store, self.broker.variables)
            figures.problems += verify_store(store)
        figures.records, figures.ids = len(log), len({seen.key for seen in output})
        figures.rows, figures.rows_uncommitted = len(output), len(raw)
        figures.aborted_rows = len(raw) + len(raw_counts) - len(output) - len(counts)
        figures.committed, figures.aborted = len(surveyed.committed), len(surveyed.aborted)
        figures.app_starts, figures.app_said = self.app.starts, dict(self.app.said)
        figures.restored = self.app.restored
        figures.seconds = round(time.monotonic() - self._begun, 1)
        return figures

    def stop(self) -> None:
        """Whatever happened: leave no process."""
        if self.app.starts:
            self.app.process.kill()
        self.broker.stop()


async def _create(bootstrap: str, topics: Mapping[str, int]) -> None:
    async with Cluster(bootstrap, environment=SystemEnvironment()) as cluster:
        await admin.create_topics(cluster, [admin.NewTopic(t, p) for t, p in topics.items()])
