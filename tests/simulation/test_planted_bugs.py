"""Teeth: each planted bug is found within a few seeds, and by the kind of check that should."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from simulation.clients.coordination import Mode, Workload
from simulation.seed import simulate

from holdfast.verify.checkers import Anomaly

_spec = importlib.util.spec_from_file_location("planted", Path(__file__).parent / "planted.py")
assert _spec is not None and _spec.loader is not None
planted = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(planted)

SEEDS_MAX = 300
HARMLESS_SEEDS = 12
EXPECTED: dict[str, set[Anomaly]] = {
    "ack-before-put": {Anomaly.ACK_NOT_DURABLE},
    "fenced-writer-acks": {Anomaly.ACK_NOT_DURABLE, Anomaly.FENCED_ACK},
    "foreign-exists-is-ours": {Anomaly.LOST_WRITE, Anomaly.CHAIN_BROKEN, Anomaly.CLAIM_BACK},
    "unknown-is-success": {Anomaly.CHAIN_BROKEN, Anomaly.LANE_HOLE, Anomaly.ACK_NOT_DURABLE},
    "offsets-not-stamped": {Anomaly.TWO_VALUES, Anomaly.GAP, Anomaly.CRASH},
    "never-validates": {Anomaly.STALE_ANSWER, Anomaly.WATERMARK_BACK, Anomaly.HIDDEN},
    "does-not-wait-for-the-owner": {
        Anomaly.SERVED_TOO_EARLY,
        Anomaly.WATERMARK_BACK,
        Anomaly.HIDDEN,
    },
    "forgets-producers": {Anomaly.DOUBLED, Anomaly.SEQUENCE_REFUSED, Anomaly.ORDER},
    "forgets-the-last-object": {Anomaly.TWO_VALUES, Anomaly.LOST_WRITE},
    "takes-retries-for-new": {Anomaly.DOUBLED, Anomaly.ORDER},
    "watermark-runs-ahead": {Anomaly.READ_NOT_DURABLE, Anomaly.WATERMARK_BACK},
    "log-start-runs-ahead": {Anomaly.LOG_START_BACK},
    "snapshot-ahead-of-its-number": {Anomaly.CRASH, Anomaly.LOST_WRITE, Anomaly.HIDDEN},
    "segment-cut-short": {Anomaly.LOST_WRITE},
    "deletes-without-snapshot-or-floor": {
        Anomaly.LOST_WRITE,
        Anomaly.CRASH,
        Anomaly.WATERMARK_BACK,
    },
    "collects-what-is-named": {Anomaly.LOST_WRITE},
    "load-loses-the-last-batch": {Anomaly.LOST_WRITE, Anomaly.GAP, Anomaly.CRASH},
    "sweeps-claims": {Anomaly.CRASH},
}
OF_DISKS: dict[str, set[Anomaly]] = {
    "ack-before-fsync": {Anomaly.ACK_NOT_DURABLE},
    "spool-dropped-before-the-put": {Anomaly.LOST_WRITE},
    "no-ceiling": {Anomaly.LOST_WRITE, Anomaly.HIDDEN},
    "store-overtakes-disk": {Anomaly.ACK_NOT_DURABLE, Anomaly.CRASH},
    "published-past-the-put": {Anomaly.HIDDEN, Anomaly.WATERMARK_BACK},
    "any-disk-will-do": {Anomaly.LOST_WRITE, Anomaly.TWO_VALUES},
    "goes-on-at-the-log-end": {
        Anomaly.LOST_WRITE,
        Anomaly.WATERMARK_BACK,
        Anomaly.TWO_VALUES,
        Anomaly.HIDDEN,
    },
    "replayed-out-of-order": {Anomaly.LOST_WRITE, Anomaly.TWO_VALUES},
}
OF_GROUPS: dict[str, set[Anomaly]] = {
    "late-acks-count": {Anomaly.NOT_OWNER_COMMIT},
    "old-owners-are-kept": {Anomaly.OWNER_REFUSED},
    "commit-acked-at-once": {Anomaly.COMMIT_NOT_DURABLE},
    "assignment-told-at-once": {Anomaly.ASSIGNMENT_NOT_DURABLE},
    "gives-what-is-owned": {Anomaly.OWNERSHIP_OVERLAP},
    "tells-the-target": {Anomaly.TOLD_ANOTHERS},
    "forgets-committed-offsets": {Anomaly.COMMITTED_BACK},
    "coordinator-never-validates": {Anomaly.STALE_ANSWER, Anomaly.COMMITTED_BACK},
}
OF_TRANSACTIONS: dict[str, set[Anomaly]] = {
    "nothing-was-aborted": {Anomaly.ABORTED_READ},
    "stable-is-the-high-watermark": {Anomaly.ABORTED_READ},
    "stable-before-the-marker": {Anomaly.STABLE_BACK, Anomaly.TORN_TRANSACTION},
    "no-markers-elsewhere": {Anomaly.STABLE_STUCK},
    "zombies-write": {Anomaly.ZOMBIE},
    "aborts-what-was-committed": {Anomaly.COMMITTED_LOST},
    "tears-what-was-committed": {Anomaly.TORN_TRANSACTION},
}
OF_STREAMS: dict[str, set[Anomaly]] = {
    "offsets-count-at-once": {Anomaly.OUTPUT_LOST, Anomaly.OFFSET_NOT_DURABLE},
    "offsets-are-dropped": {Anomaly.OUTPUT_DOUBLED},
    "pending-is-stable": {Anomaly.OUTPUT_DOUBLED},
}
OF_CLUSTERS: dict[str, set[Anomaly]] = {
    "serves-too-early": {Anomaly.SERVED_TOO_EARLY},
    "answers-for-what-it-gave": {Anomaly.ANSWER_AFTER_RELEASE},
    "trusts-its-claim": {Anomaly.STALE_ANSWER},
    "trusts-an-early-hand-over": {Anomaly.SERVED_TOO_EARLY},
    "calls-gaps-at-once": {Anomaly.GAP_CALLED},
}
OF_SHARED_DISKS: dict[str, set[Anomaly]] = {
    "hands-over-unflushed": {
        Anomaly.LOST_WRITE,
        Anomaly.TWO_VALUES,
        Anomaly.HIDDEN,
        Anomaly.WATERMARK_BACK,
    },
    "forgets-anothers-disk": {
        Anomaly.LOST_WRITE,
        Anomaly.TWO_VALUES,
        Anomaly.HIDDEN,
        Anomaly.WATERMARK_BACK,
    },
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
    workload: Workload, mode: Mode, name: str, kinds: set[Anomaly]
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
