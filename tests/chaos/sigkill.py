"""SIGKILL a broker again and again under load, and read the store back cold.

`python -m tests.chaos.sigkill --kills 200` prints figures and every broken promise; its exit code
says whether there was one. Owns the choice of instants: anywhere, right after an ack, right after
start-up, in the middle of start-up; every second broker is an eager one, so kills fall into
snapshots and rewrites too.
"""

import argparse
import asyncio
import dataclasses
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos import observers as observed
from tests.chaos.brokers import ChaosBroker
from tests.chaos.cold_read import ColdPartition, read_cold
from tests.chaos.families import FAMILIES, SHARE, TOPIC, Family, Follower
from tests.chaos.ledger import Ledger, check_cold
from tests.chaos.observers import Observers
from tests.chaos.stores import ChaosStore, chaos_store
from tests.peers.process import PeerFailed, free_port, wait_until

from holdfast.client import admin
from holdfast.client.cluster import Cluster
from holdfast.environment import SystemEnvironment
from holdfast.verify.checkers import check
from holdfast.verify.history import ColdLog, MarkerKind, Outcome

PARTITIONS = 6
INSTANTS = ("anywhere", "anywhere", "after an ack", "after start-up", "in start-up")
ACK_SECONDS_MAX = 60.0


@dataclasses.dataclass(slots=True, kw_only=True)
class Figures:
    """What a run did, and what it found."""

    kills: int = 0
    by_instant: dict[str, int] = dataclasses.field(default_factory=dict)
    restarts: int = 0
    sent: int = 0
    acked: int = 0
    acked_by: dict[str, int] = dataclasses.field(default_factory=dict)
    unknown: int = 0
    errors_told: dict[str, int] = dataclasses.field(default_factory=dict)
    history_calls: int = 0
    history_ok: int = 0
    followed: int = 0
    cold_records: int = 0
    startup_ms: list[float] = dataclasses.field(default_factory=list)
    downtime_ms: list[float] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    problems: list[str] = dataclasses.field(default_factory=list)

    def summary(self) -> dict[str, object]:
        shown = dataclasses.asdict(self)
        for name in ("startup_ms", "downtime_ms"):
            times = shown.pop(name) or [0.0]
            shown[f"{name}_median"] = round(statistics.median(times))
            shown[f"{name}_max"] = round(max(times))
        shown["problems"] = self.problems[:20]
        shown["problem_count"] = len(self.problems)
        return shown


class Run:
    """One store, one port, many brokers one after the other."""

    def __init__(
        self, folder: Path, store: ChaosStore, *, seed: int, per_second: float, life_s: float
    ) -> None:
        self.folder = folder
        self.store = store
        self.port = free_port()
        self.random = random.Random(seed)
        self.figures = Figures()
        self.ledger = Ledger(producers=list(FAMILIES), partitions=PARTITIONS)
        self.life_s = life_s
        self._count = 0
        self._killed_at: float | None = None
        self.standby = self._warm()
        bootstrap = f"127.0.0.1:{self.port}"
        self.families: list[Family] = [
            FAMILIES[name](self.ledger, number, bootstrap, per_second * SHARE[name])
            for number, name in enumerate(FAMILIES)
        ]
        self.follower = Follower(bootstrap, TOPIC, PARTITIONS)
        self.observers = Observers(
            bootstrap, self.ledger, seed=seed, polled_topic=TOPIC, pause_s=0.06
        )

    def _warm(self, *, cold_start: bool = False) -> ChaosBroker:
        self._count += 1
        return ChaosBroker(
            self.folder,
            name=f"broker-{self._count:04d}",
            store=self.store.url,
            port=free_port() if cold_start else self.port,
            eager=self._count % 2 == 0 and not cold_start,
            variables=self.store.variables,
        )

    def next_broker(self) -> ChaosBroker:
        """The warm one begins to serve, and another one warms up."""
        broker, self.standby = self.standby, self._warm()
        broker.go()
        return broker

    def begin(self) -> ChaosBroker:
        broker = self.next_broker()
        self.figures.startup_ms.append(broker.wait_ready() * 1000)
        asyncio.run(_create_topics(f"127.0.0.1:{self.port}"))
        for thread in (*self.families, self.follower, self.observers):
            thread.start()
        self._wait_for_ack(time.monotonic())
        return broker

    def kill(self, broker: ChaosBroker, instant: str) -> None:
        broker.kill()
        self._killed_at = time.monotonic()
        self.observers.mark(MarkerKind.KILL, broker.name)
        self.figures.kills += 1
        self.figures.by_instant[instant] = self.figures.by_instant.get(instant, 0) + 1

    def serve_again(self) -> ChaosBroker:
        """Start, until it is ready; on the way it may be killed in the middle of its start."""
        while True:
            broker = self.next_broker()
            self.figures.restarts += 1
            if self.random.randrange(len(INSTANTS)) == 0 and self.figures.kills > 1:
                usual_s = statistics.median(self.figures.startup_ms) / 1000
                time.sleep(self.random.uniform(0, usual_s * 1.2))
                self.kill(broker, "in start-up")
                continue
            self.figures.startup_ms.append(broker.wait_ready() * 1000)
            self.observers.mark(MarkerKind.CLAIM, broker.name)
            return broker

    def live(self, broker: ChaosBroker) -> str:
        """Let it serve for a while; returns which instant it is."""
        instant = self.random.choice(INSTANTS[:-1])
        if instant == "after start-up":
            time.sleep(self.random.uniform(0, 0.05))
            return instant
        self._wait_for_ack(broker.went_at)
        if instant == "anywhere":
            time.sleep(self.random.uniform(0, self.life_s))
        else:
            self._wait_for_ack(time.monotonic())
            time.sleep(self.random.choice((0.0, 0.0, 0.001, 0.005)))
        return instant

    def _wait_for_ack(self, since: float) -> None:
        try:
            wait_until(
                lambda: self.ledger.last_ack_at > since,
                seconds_max=ACK_SECONDS_MAX,
                what="the next ack",
            )
        except PeerFailed as failure:
            self.figures.problems.append(f"not live: {failure}")
        if self._killed_at is not None:
            self.figures.downtime_ms.append((self.ledger.last_ack_at - self._killed_at) * 1000)
            self._killed_at = None

    def finish(self, broker: ChaosBroker) -> None:
        """Let all that is under way end; then only the store is left."""
        for family in self.families:
            family.stopping.set()
        for family in self.families:
            family.join(150)
            if family.is_alive() or family.in_flight:
                self.figures.problems.append(f"not live: {family.name} still waits for its acks")
        self.observers.stopping.set()
        self.observers.join(60)
        ends = [self.ledger.acked_end(p) for p in range(PARTITIONS)]
        wait_until(
            lambda: (
                bool(self.follower.problems)
                or all(len(s) >= e for s, e in zip(self.follower.seen, ends, strict=True))
            ),
            seconds_max=60,
            what="the follower catches up",
        )
        self.follower.stopping.set()
        self.follower.join(30)
        broker.kill()
        self.standby.kill()

    def check(self) -> None:
        """Read the store back through a process that never saw it, and compare."""
        self.store = self.store.moved()
        reader = self._warm(cold_start=True)
        reader.go()
        try:
            reader.wait_ready()
            bootstrap = f"127.0.0.1:{reader.port}"
            families = read_cold(bootstrap, TOPIC, PARTITIONS)
            own = read_cold(bootstrap, observed.TOPIC, observed.PARTITIONS)
        finally:
            reader.process.stop()
        problems = self.figures.problems
        problems += self.ledger.problems + self.follower.problems + self.observers.problems
        for partition, cold in enumerate(families):
            problems += cold.problems + check_cold(self.ledger, partition, cold.identities)
            seen = self.follower.seen[partition]
            if seen != cold.identities[: len(seen)]:
                problems.append(f"{TOPIC}/{partition}: the follower saw other records")
        problems += self._check_history(families, own)
        problems += verify_store(self.store)
        self.figures.cold_records = sum(len(c.identities) for c in (*families, *own))

    def _check_history(self, families: list[ColdPartition], own: list[ColdPartition]) -> list[str]:
        history = self.observers.recorder.history
        for partition, cold in enumerate(families):
            history.cold[f"{TOPIC}/{partition}"] = ColdLog((), 0, cold.end)
        problems: list[str] = []
        for partition, cold in enumerate(own):
            problems += cold.problems
            records = tuple(enumerate(cold.identities))
            history.cold[f"{observed.TOPIC}/{partition}"] = ColdLog(records, 0, cold.end)
        self.figures.history_calls = len(history.calls)
        self.figures.history_ok = sum(call.outcome is Outcome.OK for call in history.calls)
        return problems + [str(violation) for violation in check(history)]

    def tell(self, begun: float) -> Figures:
        figures, ledger = self.figures, self.ledger
        figures.sent, figures.acked = ledger.sent, ledger.acked_count
        figures.acked_by = dict(zip(ledger.producers, ledger.acks, strict=True))
        figures.unknown = ledger.sent - ledger.acked_count
        figures.errors_told = dict(ledger.refused)
        figures.followed = sum(map(len, self.follower.seen))
        figures.seconds = round(time.monotonic() - begun, 1)
        return figures


async def _create_topics(bootstrap: str) -> None:
    async with Cluster(bootstrap, environment=SystemEnvironment()) as cluster:
        await admin.create_topics(
            cluster,
            [
                admin.NewTopic(TOPIC, PARTITIONS),
                admin.NewTopic(observed.TOPIC, observed.PARTITIONS),
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


def run(
    folder: Path, *, kills: int, seed: int, store: str, per_second: float, life_s: float
) -> Figures:
    """The whole of it: load, kills, cold read, checks."""
    begun = time.monotonic()
    with chaos_store(store, folder) as where:
        chaos = Run(folder, where, seed=seed, per_second=per_second, life_s=life_s)
        broker = chaos.begin()
        while chaos.figures.kills < kills:
            instant = chaos.live(broker)
            chaos.kill(broker, instant)
            broker = chaos.serve_again()
        chaos.finish(broker)
        chaos.check()
    return chaos.tell(begun)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.sigkill", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", choices=("directory", "s3"), default="directory")
    parser.add_argument("--rate", type=float, default=4000, help="records per second, at most")
    parser.add_argument("--life", type=float, default=2.0, help="seconds that a broker may live")
    parser.add_argument("--keep", type=Path, help="a folder to work in, kept afterwards")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-chaos-") as scratch:
        figures = run(
            options.keep or Path(scratch),
            kills=options.kills,
            seed=options.seed,
            store=options.store,
            per_second=options.rate,
            life_s=options.life,
        )
    print(json.dumps(figures.summary(), indent=2))
    sys.exit(1 if figures.problems else 0)


if __name__ == "__main__":
    main()
