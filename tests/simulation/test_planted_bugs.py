"""Teeth: each planted bug is found within a few seeds, and by the kind of check that should."""

import importlib.util
from pathlib import Path

import pytest

from holdfast.verify.checkers import Kind
from holdfast.verify.simulation import simulate

_spec = importlib.util.spec_from_file_location("planted", Path(__file__).parent / "planted.py")
assert _spec is not None and _spec.loader is not None
planted = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(planted)

SEEDS_MAX = 300
EXPECTED: dict[str, set[Kind]] = {
    "ack-before-put": {Kind.ACK_NOT_DURABLE},
    "fenced-writer-acks": {Kind.ACK_NOT_DURABLE, Kind.FENCED_ACK},
    "foreign-exists-is-ours": {Kind.LOST_WRITE, Kind.CHAIN_BROKEN, Kind.CLAIM_BACK},
    "unknown-is-success": {Kind.CHAIN_BROKEN, Kind.LANE_HOLE, Kind.ACK_NOT_DURABLE},
    "offsets-not-stamped": {Kind.TWO_VALUES, Kind.GAP, Kind.CRASH},
    "never-validates": {Kind.WATERMARK_BACK, Kind.HIDDEN},
    "does-not-wait-for-the-owner": {Kind.WATERMARK_BACK, Kind.HIDDEN},
    "forgets-producers": {Kind.DOUBLED, Kind.SEQUENCE_REFUSED, Kind.ORDER},
    "forgets-the-last-object": {Kind.TWO_VALUES, Kind.LOST_WRITE},
    "takes-retries-for-new": {Kind.DOUBLED, Kind.ORDER},
    "watermark-runs-ahead": {Kind.READ_NOT_DURABLE, Kind.WATERMARK_BACK},
    "log-start-runs-ahead": {Kind.LOG_START_BACK},
    "snapshot-ahead-of-its-number": {Kind.CRASH, Kind.LOST_WRITE, Kind.HIDDEN},
    "segment-cut-short": {Kind.LOST_WRITE},
    "deletes-without-snapshot-or-floor": {Kind.LOST_WRITE, Kind.CRASH, Kind.WATERMARK_BACK},
    "collects-what-is-named": {Kind.LOST_WRITE},
    "load-loses-the-last-batch": {Kind.LOST_WRITE, Kind.GAP, Kind.CRASH},
    "sweeps-claims": {Kind.CRASH},
}


def test_every_planted_bug_is_expected_somewhere():
    assert set(EXPECTED) == set(planted.PLANTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_planted_bug_is_caught(name: str):
    for seed in range(SEEDS_MAX):
        outcome = simulate(seed, process_type=planted.PLANTED[name])
        found = {violation.kind for violation in outcome.violations}
        if found & EXPECTED[name]:
            return
    pytest.fail(f"{name} was not caught in {SEEDS_MAX} seeds")
