"""Kill the broker with SIGKILL in the middle of the work, twice, and count what went wrong.

Starts `holdfast serve` on a new directory, produces at a steady rate with an idempotent producer,
consumes, and asks for the high watermark all the time. At the end a fresh consumer reads the whole
topic. Exit code 1 where a record was lost, doubled or out of order, or a watermark went back.

    python -m examples.demo [--seconds 18] [--rate 500] [--keep]
"""

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from examples.demo_clients import LiveReader, SteadyProducer, WatermarkWatch, create_topic, read_all
from examples.demo_verdict import judge, print_table

TOPIC = "demo"
PARTITIONS = 4
KILLS = 2
READY_SECONDS_MAX = 30.0
HOLDFAST = str(Path(sys.executable).parent / "holdfast")


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


class BrokerProcess:
    """`holdfast serve` as a child process; every start is on the same store and port."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "store"
        self._log = folder / "broker.log"
        self._address = "127.0.0.1:0"
        self._child: subprocess.Popen[str] | None = None

    @property
    def bootstrap(self) -> str:
        return self._address

    def start(self) -> None:
        """Return when the broker says that it is ready."""
        command = [HOLDFAST, "serve", "--store", str(self.store), "--listen", self._address]
        with self._log.open("a") as log:
            self._child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._child.stdout is not None
        watchdog = threading.Timer(READY_SECONDS_MAX, self._child.kill)
        watchdog.start()
        line = self._child.stdout.readline()
        watchdog.cancel()
        if " is ready on " not in line:
            raise SystemExit(f"the broker did not start:\n{self._log.read_text()[-2000:]}")
        self._address = line.split(" is ready on ")[1].split(",")[0]

    def kill(self) -> None:
        assert self._child is not None
        self._child.send_signal(signal.SIGKILL)
        self._child.wait()

    def stop(self) -> None:
        if self._child is None or self._child.poll() is not None:
            return
        self._child.terminate()
        try:
            self._child.wait(15)
        except subprocess.TimeoutExpired:
            self.kill()


def run(folder: Path, seconds: float, rate: int) -> int:
    broker = BrokerProcess(folder)
    try:
        broker.start()
        say(f"a broker is ready on {broker.bootstrap}, its store is {broker.store}")
        create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        return _work(broker, seconds, rate)
    finally:
        broker.stop()


def _work(broker: BrokerProcess, seconds: float, rate: int) -> int:
    producer = SteadyProducer(broker.bootstrap, TOPIC, PARTITIONS, rate)
    live = LiveReader(broker.bootstrap, TOPIC, PARTITIONS)
    watch = WatermarkWatch(broker.bootstrap, TOPIC, PARTITIONS)
    workers = (producer, live, watch)
    killed_at: list[float] = []
    try:
        for worker in workers:
            worker.start()
        say(f"producing {rate} records a second, consuming, and asking for watermarks")
        for _ in range(KILLS):
            time.sleep(seconds / (KILLS + 1))
            killed_at.append(time.monotonic())
            broker.kill()
            say(f"SIGKILL after {producer.acked_count} acknowledged records; starting it again")
            broker.start()
            say(f"a new process is ready, {time.monotonic() - killed_at[-1]:.2f} s after the kill")
        time.sleep(seconds / (KILLS + 1))
        producer.stop()
        say(f"{producer.acked_count} records acknowledged; reading the topic with a new consumer")
        live.wait_for(producer.ends())
    finally:
        for worker in workers:
            worker.stop()
    cold = read_all(broker.bootstrap, TOPIC, PARTITIONS, producer.ends())
    verdict = judge(producer.report(), cold, live.records, watch.report(), killed_at)
    print_table(verdict)
    broker.stop()
    return 0 if verdict.is_clean and _store_is_unharmed(broker.store) else 1


def _store_is_unharmed(store: Path) -> bool:
    command = [HOLDFAST, "inspect", "--store", str(store), "--verify"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    print("holdfast inspect --verify:", (done.stderr or done.stdout).strip().splitlines()[-1])
    return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=18.0, help="how long to produce")
    parser.add_argument("--rate", type=int, default=500, help="records a second")
    parser.add_argument("--keep", action="store_true", help="keep the store, to look at it")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    try:
        code = run(folder, options.seconds, options.rate)
    except KeyboardInterrupt:
        print("stopped")
        return 130
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    if options.keep:
        print(f"look at what is left:  holdfast inspect --store {folder / 'store'} --entries 5")
    else:
        print("run it with --keep to look at the store afterwards: holdfast inspect --store DIR")
    print("nothing was lost, doubled, reordered or rewound" if code == 0 else "FAILED: see above")
    return code


if __name__ == "__main__":
    sys.exit(main())
