"""SIGKILLs of a pipeline on a real Spark: its output equals the oracle, and the oracle has teeth.

The short form of `python -m tests.chaos.spark_kills`.
"""

from pathlib import Path

import pytest
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
from tests.chaos.spark_run import Run
from tests.peers.holdfast import HoldfastBroker

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.slow]

KILLS = (
    ("driver", Point.STATE),
    ("python worker", Point.TASK),
    ("jvm", Point.ENTRY),
    ("python worker", Point.STATE),
    ("python", Point.DATA),
)
ACKED = {(0, 0): ("a", 0), (0, 1): ("b", 0), (1, 0): ("a", 1)}


@pytest.mark.timeout(900)
def test_each_id_comes_out_once_whatever_is_killed_when(
    tmp_path: Path, holdfast_broker: HoldfastBroker, topic: str
):
    """Seed 002 by kills: state that was never committed is on disk, and swallows nothing."""
    run = Run(tmp_path, holdfast_broker, topic=topic, seed=20261116)
    try:
        run.begin()
        for target, point in KILLS:
            run.kill(target, point)
        run.finish()
    finally:
        run.stop()
    figures = run.check()
    assert figures.problems == []
    assert figures.kills >= 4
    assert figures.micro_batches > figures.kills
    assert figures.leftover_runs > 0, "no kill left state behind: this run proves nothing"
    assert figures.ids < figures.records


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("variant", "mode", "point", "window", "found"),
    [
        ("leftover state", "dedup", Point.STATE, (Window.STATE, Window.DATA), "lost"),
        ("unasked", "plain", Point.ENTRY, (Window.ENTRY,), "doubled"),
    ],
)
def test_a_planted_bug_is_found_with_few_kills(
    tmp_path: Path,
    holdfast_broker: HoldfastBroker,
    topic: str,
    variant: str,
    mode: str,
    point: Point,
    window: tuple[Window, ...],
    found: str,
):
    problems, windows = planted(
        tmp_path, holdfast_broker, topic, variant=variant, mode=mode, point=point, window=window
    )
    assert windows & {one.value for one in window}
    assert any(problem.startswith(found) for problem in problems), problems


def planted(
    folder: Path,
    broker: HoldfastBroker,
    topic: str,
    *,
    variant: str,
    mode: str,
    point: Point,
    window: tuple[Window, ...],
) -> tuple[list[str], set[str]]:
    """What the checker says of a sink with a bug, after a kill that fell where it must."""
    run = Run(folder, broker, topic=topic, seed=7, mode=mode, variant=variant)
    try:
        run.begin()
        run.go_on_until(lambda: run.watch.entries() >= 2)
        for _ in range(4):
            run.kill("driver", point)
            if any(run.figures.by_window[one.value] for one in window):
                break
        run.finish()
    finally:
        run.stop()
    figures = run.check()
    return figures.problems, set(figures.by_window)


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
