"""SIGKILL a Spark pipeline again and again, and compare its output with the oracle.

`python -m tests.chaos.spark_kills --kills 100 [--cluster]` prints figures and every broken promise;
its exit code says whether there was one. Owns the choice of what is killed when: drivers (whole,
the JVM alone, the Python driver alone), Python workers, executors and Workers of a real standalone
cluster, at chosen points of a micro-batch and at random ones; and the incidents that are more than
a kill: zombies, two drivers, a checkpoint from an old copy, a checkpoint that is gone. At the end
bugs are planted, and the checker must find each.
"""

import argparse
import dataclasses
import itertools
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.chaos import spark_zombies
from tests.chaos.spark_cluster import StandaloneCluster
from tests.chaos.spark_planted import PLANTED, find, is_found
from tests.chaos.spark_points import Point
from tests.chaos.spark_process import class_archive
from tests.chaos.spark_run import LEDGER_SAYS, Figures, Run
from tests.peers.holdfast import HoldfastBroker

LOCAL = (
    *(("driver", point) for point in Point),
    ("jvm", Point.STATE),
    ("jvm", Point.ENTRY),
    ("jvm", Point.TASK),
    ("python", Point.TASK),
    ("python", Point.DATA),
    ("python", Point.ENTRY),
    ("python worker", Point.OFFSETS),
    ("python worker", Point.TASK),
    ("python worker", Point.STATE),
    ("python worker", Point.DATA),
    ("python worker", Point.ANYWHERE),
    ("daemon", Point.TASK),
    ("planner", Point.ANYWHERE),
)
CLUSTER = (
    ("executor", Point.OFFSETS),
    ("executor", Point.TASK),
    ("executor", Point.STATE),
    ("executor", Point.DATA),
    ("executor", Point.ENTRY),
    ("executor", Point.ANYWHERE),
    ("python worker", Point.TASK),
    ("python worker", Point.STATE),
    ("node", Point.TASK),
    ("node", Point.STATE),
    ("driver", Point.STATE),
    ("driver", Point.DATA),
    ("driver", Point.ENTRY),
    ("jvm", Point.TASK),
)
STATEFUL = (
    ("driver", Point.STATE),
    ("python", Point.ENTRY),
    ("driver", Point.ENTRY),
    ("python worker", Point.TASK),
    ("jvm", Point.ENTRY),
    ("driver", Point.DATA),
    ("jvm", Point.STATE),
    ("python worker", Point.STATE),
    ("driver", Point.OFFSETS),
    ("python", Point.DATA),
    ("driver", Point.COMMIT),
    ("driver", Point.ANYWHERE),
)
CHAIN = (
    ("driver", Point.DATA),
    ("python worker", Point.TASK),
    ("driver", Point.OFFSETS),
    ("python", Point.DATA),
    ("jvm", Point.TASK),
    ("driver", Point.ANYWHERE),
    ("python worker", Point.DATA),
)
KILLS_PER_ROUND = 30
Schedule = tuple[tuple[str, Point], ...]


def in_turn(schedule: Schedule, seed: int) -> Iterator[tuple[str, Point]]:
    """Each once before any comes again, in an order that the seed decides."""
    chance = random.Random(seed)
    while True:
        yield from chance.sample(schedule, len(schedule))


def incidents(run: Run, *, rounds: int) -> None:
    """What is more than a kill."""
    zombies = itertools.cycle(spark_zombies.ZOMBIES)
    for _ in range(rounds):
        for who, point in itertools.islice(zombies, 2):
            ended = spark_zombies.zombie(run, who, point)
            say(f"zombie {who} {point.value}: {ended}")
        say(f"two drivers: {spark_zombies.twins(run)}")
    old_copy(run)
    deleted(run)
    say(f"checkpoints: {dict(run.figures.refusals)}")


def old_copy(run: Run) -> None:
    """A checkpoint from an old copy is refused with a message, and the message's remedy works."""
    run.driver.kill()
    copy = run.folder / "copy"
    shutil.copytree(run.checkpoint, copy)
    run.restart()
    before = run.watch.progress()
    run.go_on_until(lambda: run.watch.progress() >= before + 3)
    run.driver.kill()
    run.replace_checkpoint(copy)
    shutil.rmtree(copy)
    _refused(run, "restored from an old copy")


def deleted(run: Run) -> None:
    """A checkpoint that is gone is refused with a message, and the message's remedy works."""
    run.driver.kill()
    run.replace_checkpoint(None)
    run.starting = "earliest"
    _refused(run, "startingOffsets set to the ledger's position")


def _refused(run: Run, words: str) -> None:
    entries = run.watch.entries()
    run.restart()
    said = run.driver.wait_end()
    run.figures.refusals[words] += 1
    if LEDGER_SAYS not in said or "empty checkpoint folder" not in said:
        run.figures.problems.append(f"{words}: the driver ended with: {said[:500]}")
    if run.watch.entries() != entries:
        run.figures.problems.append(f"{words}: the refused driver published an entry")
    run.driver.sweep()
    run.move_to_new_checkpoint()
    run.restart()
    run.go_on_until(lambda: run.watch.entries() > entries)


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What all parts of a long run share, and how much of it one part may do."""

    folder: Path
    broker: HoldfastBroker
    archive: Path | None
    seed: int
    kills: int
    until: float

    def run(self, name: str, **options: Any) -> Run:
        topic = f"{name}-{self.seed}"
        folder = self.folder / name
        return Run(
            folder, self.broker, topic=topic, seed=self.seed, archive=self.archive, **options
        )

    def kill_often(self, run: Run, schedule: Schedule) -> None:
        """Kill until there were so many, or the time is over."""
        for target, point in in_turn(schedule, self.seed):
            if run.figures.kills >= self.kills or time.monotonic() > self.until:
                return
            run.kill(target, point)
            say(f"{run.topic} {run.figures.kills}/{self.kills} {target} {point.value}")

    def killed(
        self, run: Run, schedule: Schedule, first: Callable[[], None] = lambda: None
    ) -> Figures:
        """From its begin to its check; it is stopped whatever happens."""
        try:
            run.begin()
            first()
            self.kill_often(run, schedule)
            run.finish()
        finally:
            run.stop()
        return run.check()


def local_part(part: Part) -> Figures:
    """Dedup on local Spark, in two passes over ranges: incidents, then kills."""
    rounds = max(1, part.kills // KILLS_PER_ROUND)
    run = part.run("local", rows="ranges")
    return part.killed(run, LOCAL, first=lambda: incidents(run, rounds=rounds))


def chain_part(part: Part) -> Figures:
    """Topics onto landing chains, on local Spark."""
    return part.killed(part.run("chain", mode="chain", rows="ranges"), CHAIN)


def aggregate_part(part: Part) -> Figures:
    """Running totals by key, on local Spark."""
    return part.killed(part.run("aggregate", mode="aggregate"), STATEFUL)


def timers_part(part: Part) -> Figures:
    """Timers by key on the wall clock, on local Spark."""
    return part.killed(part.run("timers", mode="timers"), STATEFUL)


def cluster_part(part: Part) -> Figures:
    """Dedup on a standalone cluster: executors, Workers and drivers."""
    cluster = StandaloneCluster(part.folder / "nodes").start()
    try:
        return part.killed(part.run("cluster", cluster=cluster, rows="ranges"), CLUSTER)
    finally:
        cluster.stop()


def planted_part(part: Part) -> Figures:
    """Each planted bug, with as few kills as show it; a problem is a bug that was not found."""
    figures = Figures()
    for planted in PLANTED:
        name = f"{planted.variant}-{planted.mode}".replace(" ", "-")
        seen = find(part.run(name, mode=planted.mode, variant=planted.variant), planted)
        say(f"planted {name}: {seen.kills} kills: {seen.problems}")
        figures.kills += seen.kills
        figures.by_window += seen.by_window
        if not is_found(planted, seen):
            figures.problems.append(f"{name}: not found: {seen.problems}")
    return figures


PARTS = {
    "local": local_part,
    "cluster": cluster_part,
    "aggregate": aggregate_part,
    "timers": timers_part,
    "chain": chain_part,
    "planted": planted_part,
}
SHARES = {"local": 0.45, "cluster": 0.27, "aggregate": 0.08, "timers": 0.08, "chain": 0.12}
SHARES["planted"] = 0.0  # as many kills as it takes; they count for none of the product's


def run_all(
    folder: Path, *, kills: int, seed: int, parts: list[str], minutes: float
) -> dict[str, Figures]:
    """Some parts, or all, each on a topic of its own beside one broker."""
    whole = sum(SHARES[name] for name in parts) or 1.0
    shares = {name: SHARES[name] / whole for name in parts}
    begun = time.monotonic()
    broker = HoldfastBroker(folder / "broker")
    archive = class_archive(folder)
    found: dict[str, Figures] = {}
    spent = 0.0
    try:
        broker.start()
        for name, share in shares.items():
            spent += share
            part = Part(
                folder=folder,
                broker=broker,
                archive=archive,
                seed=seed,
                kills=max(1, round(kills * share)),
                until=begun + minutes * 60 * spent,
            )
            figures = found[name] = PARTS[name](part)
            if figures.kills * 2 < part.kills:
                figures.problems.append(f"void: {figures.kills} kills of {part.kills}")
            say(f"{name}: {json.dumps(figures.summary())}")
    finally:
        broker.stop()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.spark_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cluster", action="store_true", help="also on a standalone cluster")
    parser.add_argument("--minutes", type=float, default=45, help="stop killing after so long")
    parser.add_argument("--keep", type=Path, help="a folder to work in, kept afterwards")
    parser.add_argument("--part", action="append", choices=SHARES, help="this one, no other")
    options = parser.parse_args()
    chosen = options.part or [name for name in SHARES if options.cluster or name != "cluster"]
    with tempfile.TemporaryDirectory(prefix="holdfast-chaos-") as scratch:
        found = run_all(
            options.keep or Path(scratch),
            kills=options.kills,
            seed=options.seed,
            parts=chosen,
            minutes=options.minutes,
        )
    shown = {part: figures.summary() for part, figures in found.items()}
    total = sum(figures.kills for part, figures in found.items() if part != "planted")
    print(json.dumps({"kills": total, **shown}, indent=2))
    sys.exit(1 if any(figures.problems for figures in found.values()) else 0)


if __name__ == "__main__":
    main()
