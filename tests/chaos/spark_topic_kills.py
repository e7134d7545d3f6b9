"""SIGKILL a Spark query into a topic again and again, and read the topic as a consumer would.

`python -m tests.chaos.spark_topic_kills --kills 50 [--kafka] [--cluster]` prints figures and every
broken promise; its exit code says whether there was one. Owns the choice of what is killed when:
drivers (whole, the JVM alone, the Python driver alone), the process that commits, tasks, executors
of a standalone cluster; before each step of a commit, after it, and anywhere; and drivers that are
stopped in mid-commit, overtaken and woken up. At the end a bug is planted, and must be found.
"""

import argparse
import itertools
import json
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.spark_cluster import StandaloneCluster
from tests.chaos.spark_process import class_archive
from tests.chaos.spark_topic_run import ANYWHERE, COMMIT_STEPS, TASK, TopicFigures, TopicRun
from tests.chaos.spark_topic_source import BLIND
from tests.peers.holdfast import HoldfastBroker
from tests.peers.kafka import KafkaBroker

LOCAL = (
    *(("driver", step) for step in COMMIT_STEPS),
    *(("committer", step) for step in COMMIT_STEPS * 2),
    ("driver", TASK),
    ("task", TASK),
    ("jvm", "offsets"),
    ("jvm", "ended"),
    ("python", "end"),
    ("driver", ANYWHERE),
    ("jvm", ANYWHERE),
)
CLUSTER = (("executor", TASK), ("executor", "end"), ("task", TASK), ("executor", ANYWHERE))
ZOMBIES = ("end", "produce", "offsets", "look again", "ended", TASK)
CLUSTER_SHARE = 0.4


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def kill_often(run: TopicRun, schedule: tuple[tuple[str, str], ...], kills: int, until: float):
    chance = random.Random(run.topic)
    order = itertools.chain.from_iterable(
        chance.sample(schedule, len(schedule)) for _ in itertools.count()
    )
    for target, step in order:
        if run.figures.kills >= kills or time.monotonic() > until:
            return
        run.kill(target, step)
        say(f"{run.topic} {run.figures.kills}/{kills} {target} {step}")


def killed(
    run: TopicRun,
    schedule: tuple[tuple[str, str], ...],
    *,
    kills: int,
    zombies: int,
    until: float,
) -> TopicFigures:
    """From its begin to its check; it is stopped whatever happens."""
    try:
        run.begin()
        run.go_on_until(lambda: run.commits() > 0)
        for step in itertools.islice(itertools.cycle(ZOMBIES), zombies):
            say(f"{run.topic} zombie at {step}: {run.zombie(step)}")
        kill_often(run, schedule, kills, until)
        run.finish()
    finally:
        run.stop()
    return run.check()


def planted(run: TopicRun) -> TopicFigures:
    """A sink that does not ask what is there, killed after its commit: records come twice."""
    try:
        run.begin()
        run.go_on_until(lambda: run.commits() > 0)
        run.kill("driver", "ended")
        run.finish()
    finally:
        run.stop()
    return run.check()


def is_found(figures: TopicFigures) -> bool:
    return any(problem.startswith("doubled") for problem in figures.problems)


def run_all(folder: Path, options: argparse.Namespace) -> dict[str, TopicFigures]:
    begun = time.monotonic()
    until = begun + options.minutes * 60 * (1 - CLUSTER_SHARE if options.cluster else 1)
    broker = (KafkaBroker if options.kafka else HoldfastBroker)(folder / "broker")
    found: dict[str, TopicFigures] = {}
    try:
        broker.start()
        made = folder / "spark.jsa"
        archive = made if made.exists() else class_archive(folder)
        of_cluster = round(options.kills * CLUSTER_SHARE) if options.cluster else 0
        seed = options.seed
        run = TopicRun(folder / "local", broker, topic=f"local-{seed}", seed=seed, archive=archive)
        kills = options.kills - of_cluster
        found["local"] = killed(run, LOCAL, kills=kills, zombies=options.zombies, until=until)
        say(json.dumps(found["local"].summary()))
        if of_cluster:
            nodes = StandaloneCluster(folder / "nodes").start()
            try:
                run = TopicRun(
                    folder / "cluster",
                    broker,
                    topic=f"cluster-{seed}",
                    seed=seed,
                    cluster=nodes,
                    archive=archive,
                )
                found["cluster"] = killed(
                    run, CLUSTER, kills=of_cluster, zombies=0, until=begun + options.minutes * 60
                )
            finally:
                nodes.stop()
            say(json.dumps(found["cluster"].summary()))
        if options.planted:
            run = TopicRun(
                folder / "planted",
                broker,
                topic=f"planted-{seed}",
                seed=seed,
                variant=BLIND,
                archive=archive,
            )
            seen = found["planted"] = planted(run)
            said, seen.problems = seen.problems, []
            say(f"planted: {said}")
            if not any(problem.startswith("doubled") for problem in said):
                seen.problems.append(f"a sink that does not ask was not found: {said}")
    finally:
        broker.stop()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.spark_topic_kills", description=__doc__
    )
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--zombies", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kafka", action="store_true", help="on Apache Kafka, not on Holdfast")
    parser.add_argument("--cluster", action="store_true", help="also on a standalone cluster")
    parser.add_argument("--minutes", type=float, default=45, help="stop killing after so long")
    parser.add_argument("--keep", type=Path, help="a folder to work in, kept afterwards")
    parser.add_argument("--no-planted", dest="planted", action="store_false")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-chaos-") as scratch:
        found = run_all(options.keep or Path(scratch), options)
    shown = {part: figures.summary() for part, figures in found.items()}
    total = sum(figures.kills for part, figures in found.items() if part != "planted")
    print(json.dumps({"kills": total, **shown}, indent=2))
    is_void = total * 2 < options.kills
    sys.exit(1 if is_void or any(figures.problems for figures in found.values()) else 0)


if __name__ == "__main__":
    main()
