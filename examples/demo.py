"""From the log to Parquet, while a broker is drained, another one and the Spark driver are killed.

Starts `holdfast serve` three times on a new directory, which is a cluster, produces orders at a
steady rate, one in five of them a repeat, and runs a query on Spark that lands each order once. All
the while it fetches what was
just acknowledged and asks for high watermarks. At the end it counts, from the clients' own notes
and from the files that landed. Exit code 1 where anything was lost, hidden, rewound or doubled.

    pip install '.[spark]' confluent-kafka
    python -m examples.demo

Options: --rate RECORDS_PER_SECOND, --seconds SECONDS between two faults, --clean.
"""

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from examples.demo_clients import (
    LiveReader,
    NextFetch,
    ReadBack,
    SteadyProducer,
    WatermarkWatch,
    create_topic,
    leader_of,
    read_all,
    read_back,
)
from examples.demo_lake import Lake, offset_log, running_batch
from examples.demo_processes import HOLDFAST, Brokers, DriverProcess
from examples.demo_verdict import LakeSeen, LogSeen, judge, print_table

TOPIC = "orders"
PARTITIONS = 4
PIPELINE = """
[source]
kafka.bootstrap.servers = "{bootstrap}"
subscribe = "orders"

[dedup]
by = "value.$.id"

[output]
to = "lake"
sink_id = "orders"
trigger = "1 second"
checkpoint = "checkpoint"

[spark]
master = "local[2]"
conf = {{ "spark.driver.memory" = "1g" }}
"""
STARTS_MAX = 3
TRY_AGAIN = 4
"""The exit code of `holdfast run` where starting it again may help."""
WAIT_SECONDS_MAX = 300.0
MICRO_BATCH_SECONDS_MAX = 10.0
SLOWER = 10
"""How much slower records are written while Spark starts, which needs the cores for itself."""


STEPS = 9


class Progress:
    """Numbered lines, with the seconds since the start."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._step = 0

    def step(self, text: str) -> None:
        self._step += 1
        print(f"[{self._step}/{STEPS}] {self._seconds()}  {text}", flush=True)

    def note(self, text: str) -> None:
        print(f"      {self._seconds()}  {text}", flush=True)

    def _seconds(self) -> str:
        return f"{time.monotonic() - self._began:3.0f} s"


class Demo:
    """One run in one folder."""

    def __init__(self, folder: Path, *, rate: int, seconds: float) -> None:
        self.folder = folder
        self._seconds = seconds
        self._rate = rate
        self._checkpoint = folder / "checkpoint"
        self._lake = Lake(folder / "lake", TOPIC, TOPIC)
        self._brokers = Brokers(folder)
        self._killed_at: list[float] = []
        self._after_restart = ReadBack(0, [])
        self._landed_again_s = 0.0
        self._starts = 1
        self._progress = Progress()

    def run(self) -> bool:
        """Whether nothing was wrong."""
        self._progress.step("starting three brokers on one directory")
        self._brokers.start()
        create_topic(self._brokers.bootstrap, TOPIC, PARTITIONS)
        pipeline = self.folder / "orders.toml"
        pipeline.write_text(PIPELINE.format(bootstrap=self._brokers.bootstrap).lstrip())
        self._driver = DriverProcess(self.folder, pipeline)
        try:
            self._progress.step("starting Spark: holdfast run orders.toml, each order once")
            self._driver.start()
            log = self._work()
        finally:
            self._driver.stop()
            self._brokers.stop()
        positions = [self._lake.look().positions(), offset_log(self._checkpoint, TOPIC)]
        lake = LakeSeen(ids=self._lake.ids(), repeats=self._lake.repeats, logs=positions)
        verdict = judge(log, lake)
        self._progress.step("reading every byte of log and lake back")
        is_whole = _holdfast_finds_nothing(self.folder)
        print_table(verdict, landed_again_s=self._landed_again_s)
        return is_whole and verdict.is_clean

    def _work(self) -> LogSeen:
        bootstrap = self._brokers.bootstrap
        producer = SteadyProducer(bootstrap, TOPIC, PARTITIONS, self._rate // SLOWER)
        live = LiveReader(bootstrap, TOPIC, PARTITIONS)
        watch = WatermarkWatch(bootstrap, TOPIC, PARTITIONS)
        fetch = NextFetch(bootstrap, TOPIC, producer)
        workers = (producer, live, watch, fetch)
        try:
            for worker in workers:
                worker.start()
            self._progress.step(
                f"writing {producer.rate} records a second, one in five a repeat;"
                " waiting for the first rows in Parquet"
            )
            self._wait("rows have landed", lambda: self._lake.look().rows > 0)
            producer.rate = self._rate
            self._progress.note(f"Spark is up: writing {producer.rate} records a second now")
            self._go_on_for(self._seconds, producer)
            self._drain_broker(producer)
            self._go_on_for(self._seconds, producer)
            self._kill_broker(producer)
            self._go_on_for(self._seconds, producer)
            self._kill_driver(producer)
            self._go_on_for(self._seconds, producer)
            producer.stop()
            ends = producer.ends()
            self._progress.step(
                f"{producer.acked_count:,} records acknowledged; waiting until all have landed"
            )
            self._wait("all has landed", lambda: self._lake.look().has_reached(ends))
            live.wait_for(ends)
        finally:
            for worker in workers:
                worker.stop()
        fetched, again = fetch.report(), self._after_restart
        return LogSeen(
            produced=producer.report(),
            cold=read_all(bootstrap, TOPIC, PARTITIONS, ends),
            live=live.records,
            watermarks=watch.report(),
            fetched=ReadBack(fetched.asked + again.asked, fetched.hidden + again.hidden),
            killed_at=self._killed_at,
        )

    def _drain_broker(self, producer: SteadyProducer) -> None:
        number = leader_of(self._brokers.bootstrap, TOPIC, 0)
        self._progress.step(f"draining broker {number}: it hands over what it leads")
        began = time.monotonic()
        self._brokers.drain(number)
        self._progress.note(f"broker {number} was drained in {time.monotonic() - began:.2f} s")
        self._brokers.drain(number, ends=True)

    def _kill_broker(self, producer: SteadyProducer) -> None:
        acked = producer.newest_acks()
        number = leader_of(self._brokers.bootstrap, TOPIC, 0)
        broker = self._brokers.each[number]
        self._killed_at.append(time.monotonic())
        broker.kill()
        self._progress.step(
            f"SIGKILL of broker {number} after {producer.acked_count:,} acknowledged records"
        )
        self._after_restart = read_back(self._brokers.bootstrap, TOPIC, acked)
        took = time.monotonic() - self._killed_at[-1]
        self._progress.note(f"the other brokers served all of them, {took:.2f} s after the kill")
        broker.start()

    def _kill_driver(self, producer: SteadyProducer) -> None:
        give_up_at = time.monotonic() + MICRO_BATCH_SECONDS_MAX
        while (batch := running_batch(self._checkpoint)) is None:
            self._check_driver()
            if time.monotonic() > give_up_at:
                break
            time.sleep(0.002)
        killed_at = time.monotonic()
        self._driver.kill()
        rows = self._lake.look().rows
        where = "between two micro-batches" if batch is None else f"in micro-batch {batch}"
        self._progress.step(f"SIGKILL of the driver {where}, with {rows:,} rows landed")
        producer.rate = self._rate // SLOWER
        self._driver.start()
        self._wait("more rows have landed", lambda: self._lake.look().rows > rows)
        producer.rate = self._rate
        self._landed_again_s = time.monotonic() - killed_at

    def _go_on_for(self, seconds: float, producer: SteadyProducer) -> None:
        time.sleep(seconds)
        self._check_driver()
        self._progress.note(
            f"{producer.acked_count:,} acknowledged, {self._lake.look().rows:,} rows landed"
        )

    def _wait(self, what: str, is_so: Callable[[], bool]) -> None:
        give_up_at = time.monotonic() + WAIT_SECONDS_MAX
        while not is_so():
            self._check_driver()
            if time.monotonic() > give_up_at:
                raise SystemExit(
                    f"it did not come to be in {WAIT_SECONDS_MAX:.0f} s that {what}:\n"
                    f"{self._driver.last_words()}"
                )
            time.sleep(0.2)

    def _check_driver(self) -> None:
        """Start it again where it says that this may help: Spark gives up on a busy machine."""
        code = self._driver.ended_with()
        if code is None:
            return
        self._starts += 1
        words = self._driver.last_words()
        if code != TRY_AGAIN or self._starts > STARTS_MAX:
            raise SystemExit(f"the driver ended by itself, with exit code {code}:\n{words}")
        self._progress.note(f"Spark gave up ({words.splitlines()[-1]}); starting it again")
        self._driver.start()


def _holdfast_finds_nothing(folder: Path) -> bool:
    """Whether log and lake are whole as Holdfast's own tools see them, every byte read."""
    ok = True
    for command in (
        ["inspect", "--store", str(folder / "store"), "--verify"],
        ["landed", str(folder / "lake"), "--verify"],
    ):
        done = subprocess.run(
            [HOLDFAST, *command], capture_output=True, text=True, timeout=120, check=False
        )
        lines = (done.stderr + done.stdout if done.returncode else done.stdout).strip()
        last = lines.splitlines()[-1] if lines else "nothing"
        print(f"             holdfast {command[0]} --verify: {last}")
        ok = ok and done.returncode == 0
    return ok


def _show_where_to_look(folder: Path) -> None:
    print("  See for yourself:")
    print(f"    .venv/bin/holdfast landed {folder}/lake --files")
    print(f"    .venv/bin/python -m examples.read_landed --lake {folder}/lake --sink {TOPIC}")
    print(f"    .venv/bin/holdfast inspect --store {folder}/store")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=int, default=500, help="records a second")
    parser.add_argument("--seconds", type=float, default=4.0, help="between one kill and the next")
    parser.add_argument("--clean", action="store_true", help="remove what was made, at the end")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    try:
        is_clean = Demo(folder, rate=options.rate, seconds=options.seconds).run()
    except KeyboardInterrupt:
        print("stopped")
        return 130
    finally:
        if options.clean:
            shutil.rmtree(folder, ignore_errors=True)
    if not options.clean:
        _show_where_to_look(folder)
    verdict = "Nothing was lost, hidden, rewound or doubled." if is_clean else "FAILED: see above."
    print(f"\n  {verdict} ({time.monotonic() - began:.0f} s)")
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
