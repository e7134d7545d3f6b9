"""One pipeline under chaos: a growing topic, driver programs one after the other, and the verdict.

Owns the life of the drivers and the figures. What is killed when is for the caller to say; here it
is done, counted by where it really fell, and everything is started again. Must never decide what is
right: that is for tests.chaos.spark_oracle.
"""

import json
import random
import shutil
import signal
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from tests.chaos import spark_keyed_oracle, spark_oracle
from tests.chaos.spark_cluster import StandaloneCluster
from tests.chaos.spark_driver import TIMER_AFTER_MS, Plan
from tests.chaos.spark_feed import Feed, KeyedFeed
from tests.chaos.spark_points import Point, Watch, Window
from tests.chaos.spark_process import Driver, Spares, send
from tests.peers.holdfast import HoldfastBroker
from tests.peers.process import PeerFailed, wait_until
from tests.support.topics import Topics

from holdfast.keyed_state.pinned import decode_pinned
from holdfast.landing.ledger_entry import Entry
from holdfast.spark.positions import starting_offsets

PARTITIONS = 3
SINK = "orders"
POINT_SECONDS_MAX = 300.0
FINISH_SECONDS_MAX = 400.0
ENDINGS_MAX = 25
START_UP_S = 2.0
LEDGER_SAYS = "checkpoint and ledger disagree"
REFUSALS = {
    LEDGER_SAYS: "the ledger refused",
    "has written over the offset log": "the sink refused: another driver wrote over the log",
    "Multiple streaming queries are concurrently using": "Spark refused: another driver's log",
    "CONCURRENT_STREAM_LOG_UPDATE": "Spark refused: another driver's log",
}
"""How a driver may end that was overtaken, by the words that it says."""
DRIVER_PARTS = ("driver", "jvm", "python")
KEYED_MODES = ("aggregate", "timers")
HOLDS_MAX = 5
SET_AT_START = ("control", "master", "memory", "java_options", "settings")


@dataclass(slots=True, kw_only=True)
class Figures:
    """What a run did, and what it found."""

    kills: int = 0
    by_target: Counter[str] = field(default_factory=Counter)
    by_point: Counter[str] = field(default_factory=Counter)
    by_window: Counter[str] = field(default_factory=Counter)
    """Where kills of drivers fell, by what they left."""
    too_late: int = 0
    """How often a driver was stopped at the sight of its entry, and Spark's commit was there."""
    drivers: int = 0
    ended_by_themselves: Counter[str] = field(default_factory=Counter)
    zombies: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    records: int = 0
    ids: int = 0
    fired: int = 0
    """Timers."""
    micro_batches: int = 0
    orphans: int = 0
    """Files that were written and that no entry names."""
    leftover_runs: int = 0
    """The same for runs of state."""
    recovery_s: list[float] = field(default_factory=list)
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    def summary(self) -> dict[str, object]:
        # Not asdict: it takes a Counter apart wrongly.
        shown: dict[str, object] = {
            column.name: dict(value) if isinstance(value, Counter) else value
            for column in fields(self)
            if (value := getattr(self, column.name)) is not None
        }
        shown.pop("recovery_s", None)
        times = self.recovery_s or [0.0]
        shown["recovery_s_median"] = round(statistics.median(times), 1)
        shown["recovery_s_max"] = round(max(times), 1)
        return shown


class Run:
    """A topic, a pipeline, and drivers that come and go."""

    def __init__(
        self,
        folder: Path,
        broker: HoldfastBroker,
        *,
        topic: str,
        seed: int,
        mode: str = "dedup",
        rows: str = "records",
        variant: str = "",
        per_second: float = 200,
        cluster: StandaloneCluster | None = None,
        archive: Path | None = None,
        spares: Spares | None = None,
    ) -> None:
        self.folder = folder
        self.chance = random.Random(seed)
        self.figures = Figures()
        self.cluster = cluster
        self.topic, self.mode, self.rows, self.variant = topic, mode, rows, variant
        self.store = broker.store
        self.lake = folder / "lake"
        self.checkpoint = folder / "checkpoint-0"
        self.starting = "earliest"
        Topics(broker.bootstrap).create(topic, PARTITIONS)
        feed = KeyedFeed if mode in KEYED_MODES else Feed
        self.feed = feed(broker.bootstrap, topic, PARTITIONS, per_second=per_second, seed=seed)
        self._spares = spares
        self._is_given_back = False
        self._java_options = f"-XX:SharedArchiveFile={archive}" if archive is not None else ""
        self._standby: Driver | None = None
        self._lingering: list[Driver] = []
        self._killed_wall: list[float] = []
        self._begun = time.monotonic()
        self.driver = self._new_driver()

    @property
    def watch(self) -> Watch:
        return Watch(
            checkpoint=self.checkpoint,
            lake=self.lake,
            sink_id=SINK,
            chain_topic=self.topic if self.mode == "chain" else None,
        )

    def _new_driver(self) -> Driver:
        self.figures.drivers += 1
        if self._spares is not None:
            return self._spares.take()
        name = f"driver-{self.figures.drivers:03d}"
        plan = self._plan(name)
        if self.cluster is not None:
            plan = _on(self.cluster, plan)
        return Driver(plan, name)

    def _plan(self, name: str) -> Plan:
        return Plan(
            control=str(self.folder / name),
            store=self.store,
            topic=self.topic,
            lake=str(self.lake),
            checkpoint=str(self.checkpoint),
            mode=self.mode,
            sink_id=SINK,
            variant=self.variant,
            rows=self.rows,
            starting=self.starting,
            java_options=self._java_options,
        )

    def begin(self) -> "Run":
        self.feed.start()
        self._go(self.driver)
        return self

    def go(self, driver: Driver) -> None:
        """Start the query in a driver that is warm, or wait until it is."""
        plan = asdict(self._plan(driver.name))
        driver.go(**{name: value for name, value in plan.items() if name not in SET_AT_START})

    def _go(self, driver: Driver) -> None:
        self.go(driver)
        # On a cluster a second application would wait for the cores of the first.
        is_more_to_come = self._spares is None and not self.feed.stopping.is_set()
        if self.cluster is None and self._standby is None and is_more_to_come:
            self._standby = self._new_driver()

    def next_driver(self) -> Driver:
        """A warm driver that has not begun."""
        driver, self._standby = self._standby, None
        return driver if driver is not None else self._new_driver()

    def restart(self) -> None:
        """Another driver goes on; what lingers of those before may still run."""
        if (
            self.figures.drivers > 1
            and sum(self.figures.ended_by_themselves.values()) > ENDINGS_MAX
        ):
            raise PeerFailed(f"queries keep ending: {self.figures.ended_by_themselves}")
        self.driver = self.next_driver()
        self._go(self.driver)

    def kill(self, target: str, point: Point, *, within: tuple[Window, ...] = ()) -> None:
        """One kill, and all that is needed to go on after it.

        With windows, a driver is killed only in one of them; a kill after the ledger entry is
        always one between the entry and Spark's commit.
        """
        if point is Point.START and time.monotonic() - self.driver.went_at > START_UP_S:
            self.kill(target, Point.ANYWHERE)
        victims = self._victims(target)
        aim = within or ((Window.ENTRY,) if point is Point.ENTRY else ())
        is_aimed = target in DRIVER_PARTS and bool(aim) and self.mode != "chain"
        if is_aimed:
            self.hold_within(point, aim)
        else:
            self.wait_for(point)
        if not self.driver.is_running():
            self.note_end(self.driver)
            self.restart()
            return
        before = self.watch.progress()
        self._killed_wall.append(time.time())
        if target in DRIVER_PARTS:
            self._kill_driver(target, self._window() if is_aimed else None)
        elif target == "node":
            self._kill_node()
        elif not send(self._some(victims or self._victims(target)), signal.SIGKILL):
            return
        self.figures.kills += 1
        self.figures.by_target[target] += 1
        self.figures.by_point[point.value] += 1
        if target in DRIVER_PARTS:
            self.restart()
        else:
            self.go_on_until(lambda: self.watch.progress() > before)

    def hold_within(self, point: Point, windows: tuple[Window, ...]) -> None:
        """Stop the driver at a point, within one of some windows; after many tries, anywhere.

        At the sight of the point all stands still. Then there is time to look where that was; if
        it was too late, all goes on as if nothing had happened.
        """
        for i in range(HOLDS_MAX):
            self.wait_for(point)
            if not self.driver.is_running():
                return
            self.driver.hold()
            if self._window() in windows or i + 1 == HOLDS_MAX:
                return
            self.figures.too_late += 1
            self.driver.release()

    def _window(self) -> Window:
        return self.watch.window(self.driver.went_wall)

    def _kill_driver(self, target: str, seen: Window | None) -> None:
        """Kill it, and tell where that fell: as it was seen, or by what is left afterwards."""
        driver = self.driver
        driver.kill(target)
        driver.release()
        # Those before it had until now to do harm; what they do later is no part of the window.
        self._sweep_lingering()
        if target == "jvm":
            try:
                driver.wait_end()
            except PeerFailed as failure:
                self.figures.problems.append(f"not live: {failure}")
        if target != "driver":
            self._lingering.append(driver)
        self.figures.by_window[(seen or self.watch.window(driver.went_wall)).value] += 1

    def _kill_node(self) -> None:
        assert self.cluster is not None
        number = self.chance.randrange(len(self.cluster.workers))
        self.cluster.kill_worker(number)
        self.cluster.restart_worker(number)

    def _victims(self, target: str) -> list[int]:
        match target:
            case "python worker" if self.cluster is not None:
                return self.cluster.python_workers()
            case "python worker":
                return self.driver.python_workers()
            case "daemon":
                return self.driver.daemons()
            case "planner":
                return self.driver.planners()
            case "executor" if self.cluster is not None:
                return self.cluster.executors()
            case _:
                return []

    def _some(self, victims: list[int]) -> list[int]:
        return [self.chance.choice(victims)] if victims else []

    def _sweep_lingering(self) -> None:
        for driver in self._lingering:
            driver.sweep()
        self._lingering.clear()

    def wait_for(self, point: Point) -> None:
        self.watch.wait_for(
            point,
            chance=self.chance,
            is_alive=self.driver.is_running,
            seconds_max=POINT_SECONDS_MAX,
        )

    def go_on_until(
        self, is_there: Callable[[], bool], seconds_max: float = POINT_SECONDS_MAX
    ) -> None:
        """Wait; a query that ends by itself meanwhile is noted and started again."""
        begun = time.monotonic()
        while not is_there():
            if time.monotonic() - begun > seconds_max:
                raise PeerFailed(f"no progress in {seconds_max} s\n{self.driver.log_end()}")
            if not self.driver.is_running():
                self.note_end(self.driver)
                self.restart()
            time.sleep(0.01)

    def note_end(self, driver: Driver) -> None:
        said = driver.message()
        self.figures.ended_by_themselves[kind_of(said)] += 1
        self._lingering.append(driver)

    def finish(self) -> None:
        """No more records; wait until all are read; then nothing runs any more."""
        self.feed.stop()
        ends = self.feed.ends()
        self._stop_standby()
        self.go_on_until(lambda: self.position() == ends, FINISH_SECONDS_MAX)
        if self.mode == "timers":
            self._wait_for_timers()
        if self._spares is not None:
            self._spares.give_back(self.driver)
            self._is_given_back = True
        self.stop()

    def _wait_for_timers(self) -> None:
        """Until a micro-batch has run that began after the last deadline that there can be."""
        last_ms = time.time() * 1000 + TIMER_AFTER_MS + spark_keyed_oracle.CLOCK_MS
        self.go_on_until(lambda: (h := self.watch.head()) is not None and h.committed_ms > last_ms)
        before = self.watch.entries()
        self.go_on_until(lambda: self.watch.entries() > before)

    def stop(self) -> None:
        """End all processes of this run."""
        self.feed.stopping.set()
        self._sweep_lingering()
        self._stop_standby()
        if not self._is_given_back:
            self.driver.sweep()

    def _stop_standby(self) -> None:
        if self._standby is not None:
            self._standby.sweep()
            self._standby = None

    def position(self) -> dict[int, int]:
        """How far the output reaches."""
        if self.mode != "chain":
            head = self.watch.head()
            text = head.sources[0].end if head is not None else None
        else:
            newest = max(self.watch.numbers("commits"), default=None)
            path = self.checkpoint / "offsets" / str(newest)
            text = path.read_text().splitlines()[-1] if newest is not None else None
        found = json.loads(text)["topics"][self.topic]["partitions"] if text else {}
        return {**dict.fromkeys(range(PARTITIONS), 0), **{int(p): o for p, o in found.items()}}

    def check(self) -> Figures:
        """Compare the output with the oracle; call it when all has been read."""
        figures, acked = self.figures, self.feed.acked
        figures.problems += self.feed.problems
        sink = (self.lake, SINK, self.topic, acked)
        match self.mode:
            case "chain":
                figures.problems += spark_oracle.check_chain(self.lake, self.topic, acked)
                figures.micro_batches = len(self.watch.numbers("commits"))
            case "aggregate":
                figures.problems += spark_keyed_oracle.check_aggregate_sink(*sink)
            case "timers":
                figures.problems += spark_keyed_oracle.check_timer_sink(
                    *sink, self.feed.times_ms, after_ms=TIMER_AFTER_MS
                )
            case _:
                by_id = self.mode == "dedup"
                figures.problems += spark_oracle.check_sink(*sink, by_id=by_id)
        if self.mode != "chain":
            self._note_entries()
        figures.records = len(acked)
        figures.ids = len({identity for identity, _ in acked.values()})
        figures.seconds = round(time.monotonic() - self._begun, 1)
        return figures

    def _note_entries(self) -> None:
        entries = spark_oracle.read_entries(self.lake, SINK)
        self.figures.micro_batches = len(entries)
        self.figures.fired = sum(entry.counts.get("fired", 0) for entry in entries)
        files = {file.path for entry in entries for file in entry.files}
        written = [path for path in (self.lake / "data").rglob("*") if path.is_file()]
        self.figures.orphans = len(written) - len(files)
        runs = [path for path in (self.lake / "state").rglob("*-*") if path.is_file()]
        self.figures.leftover_runs = len(runs) - len(_pinned_ever(entries))
        for killed in self._killed_wall:
            after = [e.committed_ms / 1000 for e in entries if e.committed_ms / 1000 > killed]
            if after:
                self.figures.recovery_s.append(round(after[0] - killed, 2))

    def move_to_new_checkpoint(self) -> None:
        """What the messages of the ledger tell a user to do."""
        head = self.watch.head()
        assert head is not None
        self.starting = starting_offsets(head.sources[0].end)
        number = int(self.checkpoint.name.rpartition("-")[2]) + 1
        self.checkpoint = self.folder / f"checkpoint-{number}"

    def replace_checkpoint(self, copy: Path | None) -> None:
        """Put an old copy in the place of the checkpoint, or nothing."""
        shutil.rmtree(self.checkpoint)
        if copy is not None:
            shutil.copytree(copy, self.checkpoint)


def _pinned_ever(entries: list[Entry]) -> set[str]:
    states = [decode_pinned(entry.state) for entry in entries if entry.state]
    return {run.name for state in states for bucket in state.runs for run in bucket}


def kind_of(said: str) -> str:
    """A message as one word, for counting."""
    for words, kind in REFUSALS.items():
        if words in said:
            return kind
    return said[:160].replace("\n", " ") or "without a word"


def _on(cluster: StandaloneCluster, plan: Plan) -> Plan:
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.task.maxFailures": "8",
        "spark.stage.maxConsecutiveAttempts": "8",
        "spark.default.parallelism": "2",
    }
    facts = {**asdict(plan), "master": cluster.url, "warms_workers": False, "settings": settings}
    return Plan(**facts)


__all__ = ["Run", "Figures", "kind_of", "wait_until"]
