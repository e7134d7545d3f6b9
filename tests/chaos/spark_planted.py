"""Pipelines with a planted bug under the same kills: what the checker must find.

Owns which bug shows after a kill at which point, and as what. The bugs are in
tests.chaos.spark_variants.
"""

from dataclasses import dataclass

from tests.chaos.spark_points import Point, Window
from tests.chaos.spark_run import Figures, Run

KILLS_MAX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A bug, the kill that brings it out, and what is seen of it then."""

    variant: str
    mode: str
    point: Point
    windows: tuple[Window, ...]
    """Where the kill must have fallen; others harm nobody."""
    found: str


LEFTOVER_STATE = Planted(
    variant="leftover state",
    mode="dedup",
    point=Point.STATE,
    windows=(Window.STATE, Window.DATA),
    found="lost",
)
PLANTED = (
    LEFTOVER_STATE,
    Planted(
        variant="unasked",
        mode="plain",
        point=Point.ENTRY,
        windows=(Window.ENTRY,),
        found="doubled",
    ),
    Planted(
        variant="entry first",
        mode="dedup",
        point=Point.STATE,
        windows=(Window.ENTRY,),
        found="lost",
    ),
    Planted(
        variant="unasked",
        mode="aggregate",
        point=Point.ENTRY,
        windows=(Window.ENTRY,),
        found="wrong total",
    ),
    Planted(
        variant="entry first",
        mode="timers",
        point=Point.STATE,
        windows=(Window.ENTRY,),
        found="never fired",
    ),
)


def find(run: Run, planted: Planted) -> Figures:
    """Kill until one fell where it must; the figures, with what the checker says of the bug."""
    try:
        run.begin()
        run.go_on_until(lambda: run.watch.entries() >= 2)
        for _ in range(KILLS_MAX):
            run.kill("driver", planted.point, within=planted.windows)
            if any(run.figures.by_window[window.value] for window in planted.windows):
                break
        run.finish()
    finally:
        run.stop()
    return run.check()


def is_found(planted: Planted, figures: Figures) -> bool:
    return any(problem.startswith(planted.found) for problem in figures.problems)
