"""SIGKILL a Kafka Streams application and its broker in turn; compare the output with an oracle.

`python -m tests.chaos.streams_kills --kills 50` prints figures and every broken promise; its exit
code says whether there was one. Owns the choice of what is killed when: the application and the
broker, one after the other, at chosen points of a commit, at random ones, in start-up, several in a
row, both at once; the application also as if it came back on another machine, or paused until its
transactions are timed out. At the end comes an application with a planted bug, and the checker
must find it.
"""

import argparse
import dataclasses
import itertools
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.chaos.stores import ChaosStore, chaos_store
from tests.chaos.streams_app import SMALL_BUFFERS, STATIC
from tests.chaos.streams_run import Figures, Run, TurningBroker, TurningCluster
from tests.peers.holdfast import HoldfastBroker
from tests.peers.kafka import SMALL_HEAP, KafkaBroker

ANYWHERE = "anywhere"
PAUSED = "app paused"
AT_ONCE = "in start-up"
"""Soon after the kill before, without waiting until there is new output."""
APP = (ANYWHERE, "hold before offsets", "hold before commit", "hold after commit")
BROKER = (ANYWHERE, "pass before offsets", "pass before commit", "pass after commit")
BOTH = (ANYWHERE, "hold before commit", "hold after commit", "pass before commit")
KAFKA_TELLS = "-Dorg.apache.logging.log4j.level=INFO"
LIFE_S_MAX = 4.0
START_S_MAX = 4.0


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def in_turn(seed: int, *, app_only: bool) -> Iterator[tuple[str, str]]:
    """Application, broker, application, broker; each point once before any comes again."""
    chance = random.Random(seed)

    def points(chosen: tuple[str, ...]) -> Iterator[str]:
        while True:
            yield from chance.sample(chosen, len(chosen))

    app, broker, both = points((*APP, AT_ONCE)), points((*BROKER, AT_ONCE)), points(BOTH)
    for turn in itertools.count(1):
        yield ("app elsewhere" if turn % 6 == 0 else "app"), next(app)
        if app_only:
            continue
        yield "broker", next(broker)
        if turn % 5 == 0:
            yield "both", next(both)
            yield PAUSED, "pass before commit"


def kill_often(run: Run, *, kills: int, until: float, app_only: bool) -> None:
    """Kill until there were so many, or the time is over, or it does not come back."""
    for target, point in in_turn(run.chance.randrange(1 << 30), app_only=app_only):
        if run.figures.kills >= kills or time.monotonic() > until:
            run.come_back()
            return
        if point != AT_ONCE and not run.come_back():
            return
        time.sleep(run.chance.uniform(0, START_S_MAX if point == AT_ONCE else LIFE_S_MAX))
        if target == PAUSED:
            run.pause(point)
        else:
            run.kill(target, point)
        say(f"{run.figures.kills}/{kills} {target}: {point}")


def kill_plainly(run: Run, *, kills: int) -> None:
    """The application only, anywhere: what is planted has no points of its own."""
    while run.figures.kills < kills and run.come_back():
        time.sleep(run.chance.uniform(LIFE_S_MAX / 2, LIFE_S_MAX))
        run.kill("app", ANYWHERE)
    run.come_back()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One run on a store of its own."""

    lanes: int
    settings: Mapping[str, str]
    share: float
    brokers: int = 1
    problem: str = ""
    """Planted: what the oracle must say."""


PARTS = {
    # Members that are gone are missed when their session is over; RocksDB as Streams sets it up.
    "one lane": Part(lanes=1, settings={}, share=0.35),
    # Static members; RocksDB writes out uncommitted state all the time.
    "four lanes": Part(lanes=4, settings={**STATIC, **SMALL_BUFFERS}, share=0.35),
    # Groups, transactional ids and partitions are spread over brokers, which are killed in turn.
    "three brokers": Part(lanes=6, settings=STATIC, share=0.3, brokers=3),
    "at least once": Part(
        lanes=1,
        settings={"processing.guarantee": "at_least_once", "commit.interval.ms": "5000", **STATIC},
        share=0.0,
        problem="wrong count",
    ),
}
PLANTED_KILLS = 2


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much one part may do."""

    kills: int
    until: float
    seed: int = 1
    per_second: float = 400
    broker: str = "holdfast"
    store: str = "directory"
    app_only: bool = False


def broker_of(
    folder: Path, part: Part, bounds: Bounds, store: ChaosStore
) -> HoldfastBroker | TurningCluster | KafkaBroker:
    if bounds.broker == "kafka":
        return KafkaBroker(folder / "broker", jvm_options=(*SMALL_HEAP, KAFKA_TELLS))
    if part.brokers > 1:
        return TurningCluster(folder, lanes=part.lanes, store=store)
    return TurningBroker(
        folder / "broker",
        store=store.url,
        arguments=["--lanes", str(part.lanes)],
        variables=store.variables,
    )


def run_part(folder: Path, part: Part, bounds: Bounds) -> Figures:
    """From the empty store to the verdict."""
    with chaos_store(bounds.store, folder) as store:
        broker = broker_of(folder, part, bounds, store)
        return run_on(broker, folder, part, bounds)


def run_on(
    broker: HoldfastBroker | TurningCluster | KafkaBroker, folder: Path, part: Part, bounds: Bounds
) -> Figures:
    """It is stopped whatever happens."""
    run = Run(
        folder,
        broker,
        seed=bounds.seed,
        settings=part.settings,
        per_second=bounds.per_second,
    )
    try:
        run.begin()
        if part.problem:
            kill_plainly(run, kills=bounds.kills)
        else:
            kill_often(run, kills=bounds.kills, until=bounds.until, app_only=bounds.app_only)
        run.finish()
        figures = run.check()
    finally:
        run.stop()
    if part.problem:
        figures.problems = judge_planted(part, figures)
    elif figures.aborted_rows and not figures.uncommitted_problems:
        figures.problems.append("the oracle takes aborted records for good ones")
    if figures.kills < bounds.kills / 2:
        figures.problems.append(f"void: {figures.kills} kills of {bounds.kills}")
    return figures


def judge_planted(part: Part, figures: Figures) -> list[str]:
    """A bug that was planted and found is no problem; one that was not is."""
    found = any(problem.startswith(part.problem) for problem in figures.problems)
    say(f"planted: {figures.problems}")
    return [] if found else [f"not found: {part.problem}: {figures.problems}"]


def run_all(
    folder: Path, chosen: Mapping[str, Part], bounds: Bounds, *, minutes: float
) -> dict[str, Figures]:
    """One part after the other; the kills and the time are shared out."""
    whole = sum(part.share for part in chosen.values()) or 1.0
    found: dict[str, Figures] = {}
    begun, spent = time.monotonic(), 0.0
    for name, part in chosen.items():
        spent += part.share / whole
        mine = dataclasses.replace(
            bounds,
            kills=round(bounds.kills * part.share / whole) or PLANTED_KILLS,
            until=begun + minutes * 60 * spent,
        )
        found[name] = run_part(folder / name.replace(" ", "-"), part, mine)
        say(f"{name}: {json.dumps(found[name].summary())}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.streams_kills", description=__doc__
    )
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=45, help="stop killing after so long")
    parser.add_argument("--broker", choices=("holdfast", "kafka"), default="holdfast")
    parser.add_argument("--store", choices=("directory", "s3"), default="directory")
    parser.add_argument("--app-only", action="store_true", help="never kill the broker")
    parser.add_argument("--part", action="append", choices=PARTS, help="this one, no other")
    parser.add_argument("--rate", type=float, default=400, help="records per second")
    parser.add_argument("--keep", type=Path, help="a folder to work in, kept afterwards")
    options = parser.parse_args()
    chosen = {name: PARTS[name] for name in options.part or PARTS}
    bounds = Bounds(
        kills=options.kills,
        until=0.0,
        seed=options.seed,
        per_second=options.rate,
        broker=options.broker,
        store=options.store,
        app_only=options.app_only,
    )
    with tempfile.TemporaryDirectory(prefix="holdfast-chaos-") as scratch:
        folder = options.keep or Path(scratch)
        found = run_all(folder, chosen, bounds, minutes=options.minutes)
    kills = sum(figures.kills for name, figures in found.items() if chosen[name].share)
    shown = {name: figures.summary() for name, figures in found.items()}
    print(json.dumps({"kills": kills, **shown}, indent=2))
    sys.exit(1 if any(figures.problems for figures in found.values()) else 0)


if __name__ == "__main__":
    main()
