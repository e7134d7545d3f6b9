"""SIGKILLs of a pipeline on a real Spark: its output equals the oracle, and the oracle has teeth.

The short form of `python -m tests.chaos.spark_kills`, which also kills JVMs and plants bugs.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chaos import spark_zombies
from tests.chaos.spark_keyed_oracle import (
    Fired,
    Total,
    check_timers,
    check_totals,
    check_versions,
)
from tests.chaos.spark_oracle import (
    Row,
    Step,
    check_ids,
    check_order,
    check_real,
    check_records,
    check_tiles,
)
from tests.chaos.spark_points import Point, Window
from tests.chaos.spark_process import Spares
from tests.chaos.spark_run import REFUSALS, Run
from tests.peers.holdfast import HoldfastBroker

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KILLS = (
    ("driver", Point.STATE, (Window.STATE, Window.DATA)),
    ("python worker", Point.TASK, ()),
)
DRIVERS = 3
"""Two for the kills; the test after it takes one that is at rest, and one more."""
ACKED = {(0, 0): ("a", 0), (0, 1): ("b", 0), (1, 0): ("a", 1)}


@pytest.fixture(scope="module")
def spares(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spares]:
    started = Spares(tmp_path_factory.mktemp("spares"), most=DRIVERS)
    yield started
    started.stop()


@pytest.mark.timeout(600)
def test_each_id_comes_out_once_whatever_is_killed_when(
    tmp_path: Path, holdfast_broker: HoldfastBroker, topic: str, spares: Spares
):
    """Seed 002 by kills: state that was never committed is on disk, and swallows nothing."""
    run = Run(tmp_path, holdfast_broker, topic=topic, seed=20261116, rows="ranges", spares=spares)
    try:
        run.begin()
        for target, point, within in KILLS:
            run.kill(target, point, within=within)
        run.finish()
    finally:
        run.stop()
    figures = run.check()
    assert figures.problems == []
    assert figures.kills >= len(KILLS) - 1, "one query may have ended by itself first"
    assert figures.micro_batches > figures.kills
    assert figures.leftover_runs > 0, "no kill left state behind: this run proves nothing"
    assert figures.ids < figures.records


@pytest.mark.timeout(600)
def test_an_overtaken_driver_ends_with_a_message_and_changes_nothing(
    tmp_path: Path, holdfast_broker: HoldfastBroker, topic: str, spares: Spares
):
    """Two drivers that start at once are in the long form."""
    run = Run(tmp_path, holdfast_broker, topic=topic, seed=2, spares=spares)
    try:
        run.begin()
        # Of one micro-batch alone the ledger would say that it has it already.
        spark_zombies.zombie(run, "family", Point.STATE, micro_batches=2)
        run.finish()
    finally:
        run.stop()
    figures = run.check()
    assert figures.problems == []
    # The ledger or Spark's own log refuses it: whichever the driver asks first.
    assert figures.zombies.total() == 1
    assert figures.zombies.keys() <= set(REFUSALS.values())


def test_the_oracle_takes_one_copy_of_each_id():
    rows = [Row(1, 0, "a", 1), Row(0, 1, "b", 0)]
    assert check_ids(ACKED, rows) == []
    assert check_real(ACKED, rows) == []


def test_the_oracle_names_ids_that_are_lost_or_doubled_and_rows_that_nobody_wrote():
    assert check_ids(ACKED, [Row(0, 0, "a", 0)]) == ["lost: 1: b"]
    twice = [Row(0, 0, "a", 0), Row(1, 0, "a", 1), Row(0, 1, "b", 0)]
    assert check_ids(ACKED, twice) == ["doubled: 1: a"]
    assert check_real(ACKED, [Row(0, 1, "a", 0)])[0].startswith("phantom: 1")
    assert check_real(ACKED, [Row(2, 7, "a", 0)])[0].startswith("phantom: 1")


def test_the_oracle_names_records_that_are_lost_doubled_or_out_of_order():
    rows = [Row(0, 1, "b", 0), Row(0, 0, "a", 0), Row(0, 0, "a", 0)]
    assert check_records(ACKED, rows) == ["lost: 1: (1, 0)", "doubled: 1: (0, 0)"]
    assert check_order(rows)[0].startswith("out of order: 2")


def test_the_oracle_names_holes_overlaps_and_ledgers_that_end_too_early():
    whole = [Step(0, None, {0: 2}, 2), Step(1, {0: 2}, {0: 2, 1: 1}, 1)]
    assert check_tiles(whole, {0: 2, 1: 1}) == []
    assert check_tiles(whole[:1], {0: 2, 1: 1})[0].startswith("the ledger ends at")
    hole = [whole[0], Step(1, {0: 3}, {0: 4, 1: 1}, 2)]
    assert check_tiles(hole, {0: 4, 1: 1})[0].startswith("entry 1 begins at")
    again = [whole[0], Step(1, None, {0: 2}, 2)]
    assert check_tiles(again, {0: 2, 1: 0})[0].startswith("entry 1 begins at")
    short = [Step(0, None, {0: 2}, 1)]
    assert check_tiles(short, {0: 2})[0].startswith("entry 0 spans 2 records and counted 1")


PAID = {(0, 0): ("ann", 5), (0, 1): ("bob", 1), (0, 2): ("ann", 7)}
PAID_STEPS = [Step(0, None, {0: 2}, 2), Step(1, {0: 2}, {0: 3}, 1)]
TOTALS = [Total("ann", 1, 5, 0), Total("bob", 1, 1, 0), Total("ann", 2, 12, 1)]


def test_the_oracle_takes_totals_that_have_each_record_once():
    assert check_totals(PAID, TOTALS) == []
    assert check_versions(PAID, PAID_STEPS, TOTALS) == []


def test_the_oracle_names_totals_that_are_wrong_missing_doubled_or_go_back():
    assert check_totals(PAID, TOTALS[:2]) == ["wrong total: 1: ann (1, 5) of (2, 12)"]
    assert check_totals(PAID, TOTALS[::2]) == ["lost: 1: bob"]
    again = [*TOTALS[:2], Total("ann", 3, 17, 1)]
    assert check_totals(PAID, again)[0].startswith("wrong total: 1: ann (3, 17)")
    assert check_versions(PAID, PAID_STEPS, again)[0].startswith("a version is wrong: 1")
    back = check_versions(PAID, PAID_STEPS, [*TOTALS[:2], Total("ann", 1, 7, 1)])
    assert back[0].startswith("a version goes back: 1")
    assert check_versions(PAID, PAID_STEPS, TOTALS[:2])[0].startswith("a version is missing: 1")
    twice = check_versions(PAID, PAID_STEPS, [*TOTALS, TOTALS[1]])
    assert twice[0].startswith("doubled: 1: (0, 'bob')")


SEEN = {(0, 0): ("ann", 0), (0, 1): ("ann", 0)}
SEEN_MS = {(0, 0): 1_000, (0, 1): 9_000}
CLOCK = [1_500, 3_600, 3_900, 9_100, 11_200, 11_400]
TICKS = [
    Step(n, None, {0: 2 if n >= 3 else 1}, None, committed_ms=ms) for n, ms in enumerate(CLOCK)
]
"""A record in entries 0 and 3; a timer of 2 s is due in 2 (or before), and in 5."""
ONCE_EACH = [Fired("ann", 3_400, 2), Fired("ann", 11_050, 4)]


def misfired(*fired: Fired) -> str:
    said = check_timers(SEEN, SEEN_MS, TICKS, fired, after_ms=2_000)
    return "; ".join(line.partition(":")[0] for line in said)


def test_the_oracle_takes_a_timer_that_fires_once_in_each_silence():
    assert misfired(*ONCE_EACH) == ""


def test_the_oracle_names_timers_that_fire_twice_never_early_late_or_without_a_silence():
    first, second = ONCE_EACH
    assert misfired(first, second, Fired("ann", 11_050, 5)) == "fired more than once in a silence"
    assert misfired(first) == "never fired"
    assert misfired(second) == "never fired"
    assert misfired(Fired("ann", 2_900, 1), second) == "fired early"
    assert misfired(Fired("ann", 3_700, 1), second) == "fired early; fired late"
    assert misfired(first, Fired("ann", 11_300, 5)) == "fired late"
    assert misfired(first, Fired("ann", 9_050, 3), second) == "fired without a silence"
    assert misfired(first, second, Fired("bob", 3_400, 2)) == "fired without a silence"
