"""The whole broker under seeded faults: nothing is lost, hidden, rewound or doubled."""

import os
import subprocess
import sys

import pytest

from holdfast.verify.history import LandedKind, MarkerKind, Produce
from holdfast.verify.simulation import Outcome, simulate

CLEAN_SEEDS = range(30)


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    return [simulate(seed) for seed in CLEAN_SEEDS]


def test_no_seed_breaks_a_promise(outcomes: list[Outcome]):
    broken = {o.seed: [str(v) for v in o.violations] for o in outcomes if o.violations}
    assert not broken, f"replay with: python -m holdfast.verify.run --seed {next(iter(broken))}"


def test_most_seeds_prove_something(outcomes: list[Outcome]):
    void = {outcome.seed: outcome.void for outcome in outcomes if outcome.void}
    assert len(void) < len(outcomes) / 3, void


def test_the_seeds_have_faults_of_many_kinds_and_hand_offs(outcomes: list[Outcome]):
    kinds = {kind for outcome in outcomes for kind in outcome.faults}
    assert {"kill", "pause", "release", "lost after", "lands later", "late", "slow"} <= kinds
    assert sum(outcome.hand_offs for outcome in outcomes) > 3 * len(outcomes)
    assert sum(outcome.acked for outcome in outcomes) > 10 * len(outcomes)


def test_lanes_are_released_and_claimed_and_written(outcomes: list[Outcome]):
    kinds = {landing.kind for outcome in outcomes for landing in outcome.history.landings}
    assert kinds == set(LandedKind)
    marks = {marker.kind for outcome in outcomes for marker in outcome.history.markers}
    assert {MarkerKind.KILL, MarkerKind.PAUSE, MarkerKind.START, MarkerKind.RELEASE} <= marks


def test_idempotent_and_plain_producers_take_part(outcomes: list[Outcome]):
    ids = {
        call.operation.producer_id
        for outcome in outcomes
        for call in outcome.history.calls
        if isinstance(call.operation, Produce)
    }
    assert -1 in ids and len(ids) > 2


def test_a_seed_has_one_history_in_this_interpreter_and_in_another():
    here = [simulate(seed).history.digest() for seed in (3, 4)]
    assert here == [simulate(seed).history.digest() for seed in (3, 4)]
    assert here[0] != here[1]
    code = (
        "from holdfast.verify.simulation import simulate; "
        "print([simulate(seed).history.digest() for seed in (3, 4)])"
    )
    there = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "4242"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout.strip() == str(here)
