"""Drivers that should be gone and are not: stopped in mid-batch, overtaken, and woken up.

Owns the incidents with two drivers on one checkpoint. A driver that was overtaken must end: with
the ledger's message, or because Spark's own log shows it another driver. It must never publish.
"""

import signal
import time

from tests.chaos.spark_points import Point, Window
from tests.chaos.spark_process import Driver
from tests.chaos.spark_run import REFUSALS, Run, kind_of
from tests.peers.process import PeerFailed

ZOMBIES = (
    ("python", Point.STATE),
    ("family", Point.ENTRY),
    ("jvm", Point.DATA),
    ("family", Point.TASK),
    ("family", Point.STATE),
    ("family", Point.OFFSETS),
)
MICRO_BATCHES = 3
END_SECONDS_MAX = 180.0


def zombie(run: Run, who: str, point: Point, *, micro_batches: int = MICRO_BATCHES) -> str:
    """Stop a driver in mid-batch, let another go on, wake the first; how the first ended."""
    first = run.driver
    if point is Point.ENTRY:
        run.hold_within(point, (Window.ENTRY,))
    else:
        run.wait_for(point)
    first.signal(signal.SIGSTOP, who)
    try:
        run.restart()
        before = run.watch.entries()
        run.go_on_until(lambda: run.watch.entries() >= before + micro_batches)
    finally:
        first.signal(signal.SIGCONT, who)
    ended = _first_to_end(run, first, f"zombie {who} {point.value}")
    run.figures.zombies[ended] += 1
    return ended


def twins(run: Run) -> str:
    """Two drivers at once on one checkpoint; how the first of them ended."""
    run.driver.kill()
    first, second = run.next_driver(), run.next_driver()
    first.wait_warm()
    second.wait_warm()
    before = run.watch.entries()
    for driver in (first, second):
        run.go(driver)
    run.driver = second
    ended = _first_to_end(run, first, "two drivers")
    run.figures.zombies[ended] += 1
    run.go_on_until(lambda: run.watch.entries() >= before + MICRO_BATCHES)
    return ended


def _first_to_end(run: Run, first: Driver, what: str) -> str:
    """One of two drivers ends, and says why; the other goes on, or a new one does."""
    deadline = time.monotonic() + END_SECONDS_MAX
    second = run.driver
    while first.is_running() and second.is_running():
        if time.monotonic() > deadline:
            first.sweep()
            raise PeerFailed(f"{what}: both drivers still run after {END_SECONDS_MAX} s")
        time.sleep(0.01)
    if first.is_running():
        # The second one gave way; the first is then the one that goes on.
        run.driver, first = first, second
    said = first.message()
    if kind_of(said) not in REFUSALS.values():
        run.figures.problems.append(f"{what}: the driver ended with {said[:500]!r}")
    first.sweep()
    return kind_of(said)
