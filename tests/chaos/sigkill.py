"""SIGKILL a broker again and again under load, and read the store back cold.

`python -m tests.chaos.sigkill --kills 200` prints figures and every broken promise; its exit code
says whether there was one. Owns the choice of instants: anywhere, right after an ack, right after
start-up, in the middle of start-up; every second broker is an eager one, so kills fall into
snapshots and rewrites too.
"""

import argparse
import dataclasses
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.stores import ChaosStore, chaos_store
from tests.chaos.under_load import UnderLoad
from tests.peers.process import free_port
from tests.support.warm_broker import ChaosBroker

from holdfast.verify.history import MarkerKind

INSTANTS = ("anywhere", "anywhere", "after an ack", "after start-up", "in start-up")


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
    truncation_alarms: int = 0
    """Of librdkafka, told to the follower (families.Follower says why)."""
    followers_wedged: int = 0
    """As often librdkafka locked itself up, and the follower began anew."""
    epoch_ends_told: int = 0
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


class Run(UnderLoad):
    """One store, one port, many brokers one after the other."""

    def __init__(
        self, folder: Path, store: ChaosStore, *, seed: int, per_second: float, life_s: float
    ) -> None:
        self.folder = folder
        self.store = store
        self.port = free_port()
        self.random = random.Random(seed)
        self.figures = Figures()
        super().__init__(f"127.0.0.1:{self.port}", self.figures, seed=seed, per_second=per_second)
        self.life_s = life_s
        self._count = 0
        self.standby = self._warm()

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
        self.begin_load()
        return broker

    def kill(self, broker: ChaosBroker, instant: str) -> None:
        broker.kill()
        self.harmed()
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
        self.wait_for_ack(broker.went_at)
        if instant == "anywhere":
            time.sleep(self.random.uniform(0, self.life_s))
        else:
            self.wait_for_ack(time.monotonic())
            time.sleep(self.random.choice((0.0, 0.0, 0.001, 0.005)))
        return instant

    def finish(self, broker: ChaosBroker) -> None:
        """Let all that is under way end; then only the store is left."""
        self.finish_load()
        broker.kill()
        self.standby.kill()

    def check(self) -> None:
        """Read the store back, and compare."""
        self.store = self.store.moved()
        self.compare(self.store, self._warm(cold_start=True))


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
    chaos.tell(begun)
    return chaos.figures


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
