"""Seed 000: hand-offs of a primary whose newest records are on its disk alone, while Spark reads.

`python -m tests.chaos.seed_000 --hand-offs 50`: three brokers, a topic that is acknowledged from
disk and flushed once a day, Spark's own Kafka source with failOnDataLoss=true. Primaries are
drained, killed and paused under load. Prints figures and what is wrong; `--unprotected` must fail.
"""

import argparse
import dataclasses
import json
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from tests.peers.holdfast_cluster import LANES_COME_BACK_AT_ONCE, HoldfastCluster
from tests.peers.process import PeerFailed, wait_until
from tests.support.load import PARTITIONS, Load, leaders
from tests.support.warm_broker import Child

TOPIC = "journal"
A_DAY_MS = "86400000"
START_SECONDS_MAX = 180.0
LAND_SECONDS_MAX = 240.0
PAUSE_SECONDS = (0.3, 1.5, 4.0, 7.0)
STEPS = ("drain", "kill", "pause")


@dataclasses.dataclass(slots=True, kw_only=True)
class Figures:
    """What a run did, and what it found."""

    hand_offs: dict[str, int] = dataclasses.field(default_factory=lambda: dict.fromkeys(STEPS, 0))
    acked: int = 0
    landed: int = 0
    doubled: int = 0
    missing: int = 0
    seconds: float = 0.0
    aborted: str | None = None
    problems: list[str] = dataclasses.field(default_factory=list)


class Run:
    """One cluster, one producer, one query."""

    def __init__(self, folder: Path, *, seed: int, unprotected: bool) -> None:
        self.folder = folder
        self.figures = Figures()
        self._random = random.Random(seed)
        self._unprotected = unprotected
        self._cluster = HoldfastCluster(
            folder,
            arguments=[
                *("--spool", f"{folder}/spool-{{id}}"),
                *("--claim-valid-ms", "2000"),
                *LANES_COME_BACK_AT_ONCE,
            ],
            module="tests.chaos.unprotected_broker" if unprotected else None,
        )
        self._query: Child | None = None

    def run(self, hand_offs: int) -> Figures:
        begun = time.monotonic()
        self._cluster.start()
        try:
            self._work(hand_offs)
        finally:
            if self._query is not None:
                self._query.stop()
            self._cluster.stop()
        self.figures.seconds = round(time.monotonic() - begun, 1)
        return self.figures

    def _work(self, hand_offs: int) -> None:
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap})
        configs = {"holdfast.ack": "disk", "holdfast.flush.ms": A_DAY_MS}
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=configs)])[TOPIC].result(30)
        # An idempotent producer would be told that its records are gone, and stop.
        with Load(self._cluster, TOPIC, is_idempotent=not self._unprotected) as load:
            load.until_acked(200)
            self._query = self._start_query()
            self._wait(lambda: bool(self._landed()), START_SECONDS_MAX, "the query lands records")
            for number in range(hand_offs):
                if self._is_aborted():
                    break
                self._hand_off(STEPS[number % len(STEPS)])
                load.until_acked(200)
                time.sleep(self._random.uniform(0, 2))
        self.figures.acked = len(load.acked)
        self.figures.problems += [f"not acknowledged: {error}" for error in load.failed[:5]]
        if not self._is_aborted():
            self._wait(
                lambda: len(set(self._landed())) >= len(load.acked),
                LAND_SECONDS_MAX,
                "all that was acknowledged has landed",
            )
        self._judge(load)

    def _start_query(self) -> Child:
        command = [sys.executable, "-m", "tests.chaos.stock_reader"]
        command += [self._cluster.bootstrap, TOPIC, str(self.folder / "query")]
        (self.folder / "query").mkdir()
        return Child(command, log=self.folder / "query.log", environment={})

    def _hand_off(self, step: str) -> None:
        """Of a broker that leads something."""
        up = next(iter(self._cluster.brokers))
        number = self._random.choice(sorted(leaders(self._cluster, TOPIC, up) - {-1}))
        broker = self._cluster.brokers[number]
        if step == "drain":
            broker.stop()
            broker.start()
        elif step == "kill":
            broker.kill()
            time.sleep(self._random.choice((0.0, 1.0, 5.0)))
            broker.start()
        else:
            self._cluster.pause(number)
            time.sleep(self._random.choice(PAUSE_SECONDS))
            self._cluster.resume(number)
        self.figures.hand_offs[step] += 1

    def _is_aborted(self) -> bool:
        return self._query is not None and not self._query.is_running()

    def _landed(self) -> list[int]:
        """The values of all records that the query's sink has committed."""
        log = self.folder / "query" / "landed" / "_spark_metadata"
        found: list[int] = []
        files = {
            Path(json.loads(line)["path"].removeprefix("file://"))
            for entry in (sorted(log.glob("[0-9]*")) if log.exists() else [])
            for line in entry.read_text().splitlines()[1:]
        }
        for file in files:
            found += [int(json.loads(line)["value"]) for line in file.read_text().splitlines()]
        return found

    def _wait(self, is_so: Callable[[], bool], seconds_max: float, what: str) -> None:
        try:
            wait_until(lambda: self._is_aborted() or is_so(), seconds_max=seconds_max, what=what)
        except PeerFailed as failure:
            self.figures.problems.append(str(failure))

    def _judge(self, load: Load) -> None:
        figures = self.figures
        landed = self._landed()
        figures.landed = len(landed)
        figures.doubled = len(landed) - len(set(landed))
        figures.missing = len(set(load.acked) - set(landed))
        if self._is_aborted():
            assert self._query is not None
            said = self._query.log_text()
            lost = re.search(r"[^\n]*some data may have been (missed|lost)", said, re.IGNORECASE)
            figures.aborted = lost[0] if lost is not None else said[-3000:]
            figures.problems.append("the query was aborted")
        if figures.doubled:
            figures.problems.append(f"{figures.doubled} records are doubled")
        if figures.missing:
            figures.problems.append(f"{figures.missing} acknowledged records have not landed")


def run(folder: Path, *, hand_offs: int, seed: int = 1, unprotected: bool = False) -> Figures:
    return Run(folder, seed=seed, unprotected=unprotected).run(hand_offs)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.seed_000", description=__doc__)
    parser.add_argument("--hand-offs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--unprotected", action="store_true", help="must fail")
    parser.add_argument("--keep", type=Path, help="a folder to work in, kept afterwards")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-seed-") as scratch:
        figures = run(
            options.keep or Path(scratch),
            hand_offs=options.hand_offs,
            seed=options.seed,
            unprotected=options.unprotected,
        )
    print(json.dumps(dataclasses.asdict(figures), indent=2))
    sys.exit(1 if figures.problems else 0)


if __name__ == "__main__":
    main()
