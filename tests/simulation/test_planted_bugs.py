"""Teeth: each planted bug is found within a few seeds, and by the kind of check that should."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from simulation.clients.coordination import Mode, Workload
from simulation.seed import simulate

from holdfast.verify.checkers import Kind

_spec = importlib.util.spec_from_file_location("planted", Path(__file__).parent / "planted.py")
assert _spec is not None and _spec.loader is not None
planted = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(planted)

SEEDS_MAX = 300
HARMLESS_SEEDS = 12
EXPECTED: dict[str, set[Kind]] = {
    "ack-before-put": {Kind.ACK_NOT_DURABLE},
    "fenced-writer-acks": {Kind.ACK_NOT_DURABLE, Kind.FENCED_ACK},
    "foreign-exists-is-ours": {Kind.LOST_WRITE, Kind.CHAIN_BROKEN, Kind.CLAIM_BACK},
    "unknown-is-success": {Kind.CHAIN_BROKEN, Kind.LANE_HOLE, Kind.ACK_NOT_DURABLE},
    "offsets-not-stamped": {Kind.TWO_VALUES, Kind.GAP, Kind.CRASH},
    "never-validates": {Kind.STALE_ANSWER, Kind.WATERMARK_BACK, Kind.HIDDEN},
    "does-not-wait-for-the-owner": {Kind.SERVED_TOO_EARLY, Kind.WATERMARK_BACK, Kind.HIDDEN},
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
OF_DISKS: dict[str, set[Kind]] = {
    "ack-before-fsync": {Kind.ACK_NOT_DURABLE},
    "spool-dropped-before-the-put": {Kind.LOST_WRITE},
    "no-ceiling": {Kind.LOST_WRITE, Kind.HIDDEN},
    "store-overtakes-disk": {Kind.ACK_NOT_DURABLE, Kind.CRASH},
    "published-past-the-put": {Kind.HIDDEN, Kind.WATERMARK_BACK},
    "any-disk-will-do": {Kind.LOST_WRITE, Kind.TWO_VALUES},
    "goes-on-at-the-log-end": {Kind.LOST_WRITE, Kind.WATERMARK_BACK, Kind.TWO_VALUES, Kind.HIDDEN},
    "replayed-out-of-order": {Kind.LOST_WRITE, Kind.TWO_VALUES},
}
OF_GROUPS: dict[str, set[Kind]] = {
    "late-acks-count": {Kind.NOT_OWNER_COMMIT},
    "old-owners-are-kept": {Kind.OWNER_REFUSED},
    "commit-acked-at-once": {Kind.COMMIT_NOT_DURABLE},
    "assignment-told-at-once": {Kind.ASSIGNMENT_NOT_DURABLE},
    "gives-what-is-owned": {Kind.OWNERSHIP_OVERLAP},
    "tells-the-target": {Kind.TOLD_ANOTHERS},
    "forgets-committed-offsets": {Kind.COMMITTED_BACK},
    "coordinator-never-validates": {Kind.STALE_ANSWER, Kind.COMMITTED_BACK},
}
OF_TRANSACTIONS: dict[str, set[Kind]] = {
    "nothing-was-aborted": {Kind.ABORTED_READ},
    "stable-is-the-high-watermark": {Kind.ABORTED_READ},
    "stable-before-the-marker": {Kind.STABLE_BACK, Kind.TORN_TRANSACTION},
    "no-markers-elsewhere": {Kind.STABLE_STUCK},
    "zombies-write": {Kind.ZOMBIE},
    "aborts-what-was-committed": {Kind.COMMITTED_LOST},
    "tears-what-was-committed": {Kind.TORN_TRANSACTION},
}
OF_STREAMS: dict[str, set[Kind]] = {
    "offsets-count-at-once": {Kind.OUTPUT_LOST, Kind.OFFSET_NOT_DURABLE},
    "offsets-are-dropped": {Kind.OUTPUT_DOUBLED},
    "pending-is-stable": {Kind.OUTPUT_DOUBLED},
}
OF_CLUSTERS: dict[str, set[Kind]] = {
    "serves-too-early": {Kind.SERVED_TOO_EARLY},
    "answers-for-what-it-gave": {Kind.ANSWER_AFTER_RELEASE},
    "trusts-its-claim": {Kind.STALE_ANSWER},
    "trusts-an-early-hand-over": {Kind.SERVED_TOO_EARLY},
    "calls-gaps-at-once": {Kind.GAP_CALLED},
}
OF_SHARED_DISKS: dict[str, set[Kind]] = {
    "hands-over-unflushed": {Kind.LOST_WRITE, Kind.TWO_VALUES, Kind.HIDDEN, Kind.WATERMARK_BACK},
    "forgets-anothers-disk": {Kind.LOST_WRITE, Kind.TWO_VALUES, Kind.HIDDEN, Kind.WATERMARK_BACK},
}
LATE: dict[str, int] = {
    "any-disk-will-do": 12,
    "commit-acked-at-once": 16,
    "coordinator-never-validates": 19,
    "foreign-exists-is-ours": 4,
    "forgets-anothers-disk": 13,
    "forgets-producers": 15,
    "goes-on-at-the-log-end": 38,
    "hands-over-unflushed": 10,
    "log-start-runs-ahead": 102,
    "never-validates": 58,
    "old-owners-are-kept": 31,
    "pending-is-stable": 74,
    "published-past-the-put": 35,
    "snapshot-ahead-of-its-number": 16,
    "spool-dropped-before-the-put": 12,
    "stable-before-the-marker": 74,
    "takes-retries-for-new": 15,
}
"""Where the search for a bug begins that few seeds show: the first that was seen to show it."""
CASES = [
    pytest.param(workload, mode, name, kinds, id=name)
    for workload, mode, expected in (
        (Workload.RECORDS, Mode.ALONE, EXPECTED),
        (Workload.RECORDS, Mode.ALONE, OF_DISKS),
        (Workload.GROUPS, Mode.ALONE, OF_GROUPS),
        (Workload.TRANSACTIONS, Mode.ALONE, OF_TRANSACTIONS),
        (Workload.STREAMS, Mode.ALONE, OF_STREAMS),
        (Workload.RECORDS, Mode.CLUSTER, OF_CLUSTERS),
        (Workload.RECORDS, Mode.CLUSTER, OF_SHARED_DISKS),
    )
    for name, kinds in sorted(expected.items())
]


def test_every_planted_bug_is_expected_somewhere():
    assert {case.id for case in CASES} == set(planted.PLANTED)


@pytest.mark.parametrize(("workload", "mode", "name", "kinds"), CASES)
def test_a_planted_bug_is_caught_on_a_seed_that_is_clean_without_it(
    workload: Workload, mode: Mode, name: str, kinds: set[Kind]
):
    kind: Any = {"workload": workload, "mode": mode}
    if mode is Mode.CLUSTER:
        kind["uses_disks"] = name in OF_SHARED_DISKS
    first = LATE.get(name, 0)
    for seed in (*range(first, SEEDS_MAX), *range(first)):
        outcome = simulate(seed, process_type=planted.PLANTED[name], **kind)
        if {violation.kind for violation in outcome.violations} & kinds:
            assert not simulate(seed, **kind).violations
            return
    pytest.fail(f"{name} was not caught in {SEEDS_MAX} seeds")


@pytest.mark.parametrize("name", planted.HARMLESS)
def test_who_is_wrong_about_who_leads_loses_time_and_breaks_no_promise(name: str):
    for seed in range(HARMLESS_SEEDS):
        outcome = simulate(
            seed,
            process_type=planted.HARMLESS[name],
            workload=Workload.RECORDS,
            mode=Mode.CLUSTER,
            uses_disks=seed % 2 == 0,
        )
        assert not [str(v) for v in outcome.violations], (name, seed)
