"""One run of a Spark query into a topic under kills: a feed, drivers that come and go, the check.

Owns aiming, killing and starting again. What goes into the topic is the product's; what must be in
it is for tests.chaos.spark_topic_oracle.
"""

import asyncio
import json
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from tests.chaos.spark_cluster import StandaloneCluster
from tests.chaos.spark_driver import Plan
from tests.chaos.spark_feed import Feed
from tests.chaos.spark_process import Driver, Spares, send
from tests.chaos.spark_run import PARTITIONS, SET_AT_START, _on
from tests.chaos.spark_topic_oracle import check_told, check_topic, read_topic
from tests.chaos.spark_topic_source import TASK
from tests.peers.holdfast import HoldfastBroker
from tests.peers.kafka import KafkaBroker
from tests.peers.process import PeerFailed
from tests.support.topics import Topics

from holdfast.client.cluster import Cluster
from holdfast.client.groups import committed_offsets
from holdfast.environment import SystemEnvironment

OUT_PARTITIONS = 4
POINT_SECONDS_MAX = 240.0
FINISH_SECONDS_MAX = 300.0
ENDINGS_MAX = 12
COMMIT_STEPS = ("look", "begin", "look again", "add", "produce", "offsets", "end", "ended")
ANYWHERE = "anywhere"
REFUSALS = {
    "TopicSinkRefused": "the sink refused",
    "Multiple streaming queries are concurrently using": "Spark refused: another driver's log",
    "CONCURRENT_STREAM_LOG_UPDATE": "Spark refused: another driver's log",
}


@dataclass(slots=True, kw_only=True)
class TopicFigures:
    """What a run did, and what it found."""

    kills: int = 0
    by_target: Counter[str] = field(default_factory=Counter)
    by_step: Counter[str] = field(default_factory=Counter)
    zombies: Counter[str] = field(default_factory=Counter)
    drivers: int = 0
    ended_by_themselves: Counter[str] = field(default_factory=Counter)
    records: int = 0
    aborted: int = 0
    """Records that were written and never became visible."""
    micro_batches: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    def summary(self) -> dict[str, object]:
        return {
            column.name: dict(value) if isinstance(value, Counter) else value
            for column in fields(self)
            for value in [getattr(self, column.name)]
        }


class TopicRun:
    """A topic, a query from it into another, and drivers of it."""

    def __init__(
        self,
        folder: Path,
        broker: HoldfastBroker | KafkaBroker,
        *,
        topic: str,
        seed: int,
        variant: str = "",
        per_second: float = 200,
        cluster: StandaloneCluster | None = None,
        archive: Path | None = None,
        spares: Spares | None = None,
    ) -> None:
        self.folder, self.broker, self.cluster = folder, broker, cluster
        self.figures = TopicFigures()
        self.chance = random.Random(seed)
        self.topic, self.output, self.variant = topic, f"{topic}-out", variant
        self.checkpoint = folder / "checkpoint"
        self.aim = folder / "aim"
        self.aim.mkdir(parents=True)
        topics = Topics(broker.bootstrap)
        topics.create(topic, PARTITIONS)
        topics.create(self.output, OUT_PARTITIONS)
        self.feed = Feed(broker.bootstrap, topic, PARTITIONS, per_second=per_second, seed=seed)
        self._java_options = f"-XX:SharedArchiveFile={archive}" if archive is not None else ""
        self._spares = spares
        self._standby: Driver | None = None
        self._lingering: list[Driver] = []
        self._begun = time.monotonic()
        self.driver = self._new_driver()

    def _new_driver(self) -> Driver:
        self.figures.drivers += 1
        if self._spares is not None:
            return self._spares.take()
        name = f"driver-{self.figures.drivers:03d}"
        plan = self._plan(name)
        return Driver(_on(self.cluster, plan) if self.cluster is not None else plan, name)

    def _plan(self, name: str) -> Plan:
        return Plan(
            control=str(self.folder / name),
            store=self.broker.store if isinstance(self.broker, HoldfastBroker) else "",
            topic=self.topic,
            lake=str(self.aim),
            checkpoint=str(self.checkpoint),
            mode="topic",
            sink_id=f"sink-{self.output}",
            variant=self.variant,
            bootstrap=self.broker.bootstrap,
            output=self.output,
            java_options=self._java_options,
        )

    def begin(self) -> None:
        self.feed.start()
        self._go(self.driver)

    def _go(self, driver: Driver) -> None:
        plan = asdict(self._plan(driver.name))
        driver.go(**{name: value for name, value in plan.items() if name not in SET_AT_START})
        more_to_come = self._spares is None and not self.feed.stopping.is_set()
        if self.cluster is None and self._standby is None and more_to_come:
            self._standby = self._new_driver()

    def restart(self) -> None:
        """Another driver goes on; what lingers of those before may still run."""
        if sum(self.figures.ended_by_themselves.values()) > ENDINGS_MAX:
            raise PeerFailed(f"queries keep ending: {self.figures.ended_by_themselves}")
        self.driver, self._standby = self._standby or self._new_driver(), None
        self._go(self.driver)

    def commits(self) -> int:
        """How many micro-batches Spark's own log has."""
        return max(self._committed(), default=-1) + 1

    def _committed(self) -> list[int]:
        folder = self.checkpoint / "commits"
        return [int(p.name) for p in folder.glob("*") if p.name.isdigit()]

    def position(self) -> dict[int, int]:
        """Where the newest micro-batch ends that Spark has committed."""
        newest = max(self._committed(), default=None)
        if newest is None:
            return {}
        text = (self.checkpoint / "offsets" / str(newest)).read_text().splitlines()[-1]
        found = json.loads(text)["topics"][self.topic]["partitions"]
        return {int(partition): offset for partition, offset in found.items()}

    def hold_at(self, step: str) -> int | None:
        """Wait until a process has come to a step, and waits there; None where the driver ended."""
        (self.aim / "at").unlink(missing_ok=True)
        (self.aim / "hold").write_text(step)
        deadline = time.monotonic() + POINT_SECONDS_MAX
        while not (self.aim / "at").exists():
            if not self.driver.is_running():
                self.let_go()
                return None
            if time.monotonic() > deadline:
                raise PeerFailed(f"nobody came to {step!r}\n{self.driver.log_end()}")
            time.sleep(0.002)
        return int((self.aim / "at").read_text())

    def let_go(self) -> None:
        (self.aim / "hold").unlink(missing_ok=True)
        (self.aim / "at").unlink(missing_ok=True)

    def kill(self, target: str, step: str) -> None:
        """One kill, and all that is needed to go on after it."""
        before = self.commits()
        if step == ANYWHERE:
            self.go_on_until(lambda: self.commits() > before)
            time.sleep(self.chance.random() * 1.5)
            at = None
        else:
            at = self.hold_at(step)
            if at is None:
                self.note_end()
                return
        match target:
            case "driver" | "jvm" | "python":
                self.driver.kill(target)
                self._lingering.append(self.driver)
            case "executor":
                assert self.cluster is not None
                send(self.cluster.executors()[:1], signal.SIGKILL)
            case _:
                send([at] if at is not None else self.driver.python_workers()[:1], signal.SIGKILL)
        self.let_go()
        self.figures.kills += 1
        self.figures.by_target[target] += 1
        self.figures.by_step[step] += 1
        if target == "python":
            time.sleep(0.5)
        self._check_group()
        if target in ("driver", "jvm", "python"):
            self.restart()
        self.go_on_until(lambda: self.commits() > before)

    def zombie(self, step: str, *, micro_batches: int = 2) -> str:
        """Stop a driver at a step of its commit, let another go on, wake it; how it ended."""
        first = self.driver
        if self.hold_at(step) is None:
            self.note_end()
            return "ended before"
        first.signal(signal.SIGSTOP)
        self.let_go()
        try:
            before = self.commits()
            self.restart()
            self.go_on_until(lambda: self.commits() >= before + micro_batches)
        finally:
            first.signal(signal.SIGCONT)
        ended = kind_of(first.wait_end())
        if ended not in REFUSALS.values():
            self.figures.problems.append(f"zombie at {step}: it ended with {ended!r}")
        first.sweep()
        self.figures.zombies[ended] += 1
        now = self.commits()
        self.go_on_until(lambda: self.commits() > now)
        return ended

    def go_on_until(self, is_there: Callable[[], bool], seconds_max: float = 0.0) -> None:
        """Wait; a query that ends by itself meanwhile is noted and started again."""
        deadline = time.monotonic() + (seconds_max or POINT_SECONDS_MAX)
        while not is_there():
            if time.monotonic() > deadline:
                raise PeerFailed(f"no progress\n{self.driver.log_end()}")
            if not self.driver.is_running():
                self.note_end()
            time.sleep(0.01)

    def note_end(self) -> None:
        self.figures.ended_by_themselves[kind_of(self.driver.message())] += 1
        self._lingering.append(self.driver)
        self.restart()

    def _check_group(self) -> None:
        """Told first, committed after it: both only grow."""

        async def ask() -> dict[int, int]:
            async with Cluster(self.broker.bootstrap, environment=SystemEnvironment()) as cluster:
                found = await committed_offsets(cluster, f"{self.topic}-lag")
                return {where.partition: offset for where, offset in found.items()}

        told = asyncio.run(ask())
        self.figures.problems += check_told(told, self.position())

    def finish(self) -> None:
        """No more records; wait until all are read; then nothing runs any more."""
        self.feed.stop()
        ends = self.feed.ends()
        self._stop_standby()
        self.go_on_until(
            lambda: {**dict.fromkeys(range(PARTITIONS), 0), **self.position()} == ends,
            FINISH_SECONDS_MAX,
        )
        self.stop()

    def stop(self) -> None:
        self.let_go()
        self.feed.stopping.set()
        for driver in (*self._lingering, self.driver):
            driver.sweep()
        self._stop_standby()

    def _stop_standby(self) -> None:
        if self._standby is not None:
            self._standby.sweep()
            self._standby = None

    def check(self) -> TopicFigures:
        """Compare what readers see with what was produced; call it when all has been read."""
        figures = self.figures
        bootstrap = self.broker.bootstrap
        found = read_topic(bootstrap, self.output, OUT_PARTITIONS)
        written = read_topic(bootstrap, self.output, OUT_PARTITIONS, isolation="read_uncommitted")
        figures.problems += self.feed.problems
        figures.problems += check_topic(self.feed.acked, found)
        self._check_group()
        figures.records = len(self.feed.acked)
        figures.aborted = sum(map(len, written)) - sum(map(len, found))
        figures.micro_batches = self.commits()
        figures.seconds = round(time.monotonic() - self._begun, 1)
        return figures


def kind_of(said: str) -> str:
    """A message as one word, for counting."""
    for words, kind in REFUSALS.items():
        if words in said:
            return kind
    return said[:200].replace("\n", " ") or "without a word"


__all__ = ["COMMIT_STEPS", "TASK", "TopicFigures", "TopicRun", "kind_of"]
