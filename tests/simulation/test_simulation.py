"""The whole broker under seeded faults: nothing is lost, hidden, rewound or doubled."""

import os
import subprocess
import sys

import pytest
from simulation.broker_process import BrokerProcess
from simulation.clients.coordination import Mode, Workload
from simulation.seed import SeedOutcome, Simulation, simulate

from holdfast.verify.history import Call, LandedKind, MarkerKind, Operation, Outcome, Produce
from holdfast.verify.vocabulary import (
    Assigned,
    CommitOffsets,
    ConsumerHeartbeat,
    EndTransaction,
    InitProducer,
    MemberOwns,
    MemberRenamed,
    OffsetsEnded,
    OffsetsTaken,
    SyncGroup,
)

CLEAN_SEEDS = range(30)
COORDINATED_SEEDS = range(24)
COORDINATED = [workload for workload in Workload if workload is not Workload.RECORDS]


@pytest.fixture(scope="module")
def outcomes() -> list[SeedOutcome]:
    return [simulate(seed, workload=Workload.RECORDS, mode=Mode.ALONE) for seed in CLEAN_SEEDS]


@pytest.fixture(scope="module")
def coordinated() -> dict[Workload, list[SeedOutcome]]:
    return {
        w: [simulate(seed, workload=w, mode=Mode.ALONE) for seed in COORDINATED_SEEDS]
        for w in COORDINATED
    }


def replay(outcome: SeedOutcome) -> str:
    options = (
        f"--seed {outcome.seed} --workload {outcome.workload.value} --mode {outcome.mode.value}"
    )
    return f"replay with: python -m simulation.run {options}"


def calls_of(outcomes: list[SeedOutcome], *kinds: type[Operation]) -> list[Call]:
    return [c for o in outcomes for c in o.history.calls if isinstance(c.operation, kinds)]


def test_no_seed_breaks_a_promise(
    outcomes: list[SeedOutcome], coordinated: dict[Workload, list[SeedOutcome]]
):
    for outcome in [*outcomes, *(o for found in coordinated.values() for o in found)]:
        assert not [str(v) for v in outcome.violations], replay(outcome)


def test_a_seed_draws_its_kind_and_every_kind_is_drawn():
    kinds = [Simulation(seed, BrokerProcess).workload for seed in range(60)]
    assert set(kinds) == set(Workload)
    assert simulate(0).workload is kinds[0]


def test_most_coordinated_seeds_prove_something_and_end_all_their_transactions(
    coordinated: dict[Workload, list[SeedOutcome]],
):
    for workload, found in coordinated.items():
        assert sum(o.void is not None for o in found) < len(found) / 3, workload
        assert sum(o.history.is_settled for o in found) > 0.9 * len(found), workload


def test_members_of_both_protocols_are_assigned_and_commit_and_lose_and_commit_late(
    coordinated: dict[Workload, list[SeedOutcome]],
):
    found = coordinated[Workload.GROUPS]
    for kind in (SyncGroup, ConsumerHeartbeat):
        told = [c.result for c in calls_of(found, kind) if isinstance(c.result, Assigned)]
        assert sum(bool(assigned.partitions) for assigned in told) > 20, kind
    taken = [c.result for c in calls_of(found, CommitOffsets) if isinstance(c.result, OffsetsTaken)]
    assert sum(bool(result.partitions) for result in taken) > 100
    assert sum(bool(result.not_owned) for result in taken) > 10
    decisions = [d for o in found for landing in o.history.landings for d in landing.decisions]
    assert any(isinstance(d, MemberOwns) and d.giving_up for d in decisions)
    assert any(isinstance(d, MemberRenamed) for d in decisions)


def test_transactions_end_both_ways_over_several_lanes_and_zombies_are_refused(
    coordinated: dict[Workload, list[SeedOutcome]],
):
    found = coordinated[Workload.TRANSACTIONS]
    ends = calls_of(found, EndTransaction)
    for committed in (True, False):
        done = [c for c in ends if c.operation.committed is committed]  # type: ignore[union-attr]
        assert sum(c.outcome is Outcome.OK for c in done) > 30
    assert sum(c.error == "PRODUCER_FENCED" for c in ends) > 10
    lanes: dict[int, set[str]] = {}
    for call in calls_of(found, Produce):
        operation = call.operation
        assert isinstance(operation, Produce)
        if call.outcome is Outcome.OK:
            lanes.setdefault(operation.transaction, set()).add(operation.partition)
    assert sum(len(partitions) > 1 for partitions in lanes.values()) > 20
    assert len(calls_of(found, InitProducer)) > 50


def test_workers_commit_output_and_offsets_and_some_are_aborted(
    coordinated: dict[Workload, list[SeedOutcome]],
):
    found = coordinated[Workload.STREAMS]
    assert sum(len(o.history.sources) for o in found) > 100
    ended = [
        d.committed
        for o in found
        for landing in o.history.landings
        for d in landing.decisions
        if isinstance(d, OffsetsEnded)
    ]
    assert ended.count(True) > 30
    assert ended.count(False) > 5


def test_most_seeds_prove_something(outcomes: list[SeedOutcome]):
    void = {outcome.seed: outcome.void for outcome in outcomes if outcome.void}
    assert len(void) < len(outcomes) / 3, void


def test_the_seeds_have_faults_of_many_kinds_and_hand_offs(outcomes: list[SeedOutcome]):
    kinds = {kind for outcome in outcomes for kind in outcome.faults}
    assert {"kill", "pause", "release", "lost after", "lands later", "late", "slow"} <= kinds
    assert sum(outcome.hand_offs for outcome in outcomes) > 3 * len(outcomes)
    assert sum(outcome.acked for outcome in outcomes) > 10 * len(outcomes)


def test_records_are_acknowledged_from_disks_that_are_torn_full_slow_lost_and_given_up():
    found = [simulate(seed, workload=Workload.RECORDS, mode=Mode.ALONE) for seed in range(30, 75)]
    for outcome in found:
        assert not [str(v) for v in outcome.violations], replay(outcome)
    with_disks = [outcome for outcome in found if outcome.history.frames]
    assert 10 < len(with_disks) < len(found)
    assert sum(len(outcome.history.frames) for outcome in with_disks) > 200
    details = {m.detail for outcome in found for m in outcome.history.markers}
    assert {"disk full", "disk slow", "disk lost"} <= details
    landings = [landing for outcome in found for landing in outcome.history.landings]
    assert any(landing.given_up for landing in landings)
    framed = {
        (frame.lane, frame.claim, append)
        for outcome in with_disks
        for frame in outcome.history.frames
        for append in frame.appends
    }
    # Taken in from a disk: by another claim than the one that wrote the frame.
    assert any(
        (landing.lane, claim, append) in framed
        for landing in landings
        for append in landing.appends
        for claim in range(landing.claim)
    )


def test_lanes_are_released_and_claimed_and_written(outcomes: list[SeedOutcome]):
    kinds = {landing.kind for outcome in outcomes for landing in outcome.history.landings}
    assert kinds == set(LandedKind)
    marks = {marker.kind for outcome in outcomes for marker in outcome.history.markers}
    assert {MarkerKind.KILL, MarkerKind.PAUSE, MarkerKind.START, MarkerKind.RELEASE} <= marks


def test_idempotent_and_plain_producers_take_part(outcomes: list[SeedOutcome]):
    ids = {
        call.operation.producer_id
        for outcome in outcomes
        for call in outcome.history.calls
        if isinstance(call.operation, Produce)
    }
    assert -1 in ids and len(ids) > 2


def test_a_seed_has_one_history_in_this_interpreter_and_in_another():
    kinds = [
        *((workload, Mode.ALONE, None) for workload in Workload),
        (Workload.RECORDS, Mode.CLUSTER, True),
        (Workload.GROUPS, Mode.CLUSTER, False),
        (Workload.STREAMS, Mode.CLUSTER, True),
    ]

    def digests() -> list[str]:
        return [simulate(3, workload=w, mode=m, uses_disks=d).history.digest() for w, m, d in kinds]

    here = digests()
    assert here == digests()
    assert len(set(here)) == len(here)
    code = (
        "from simulation.clients.coordination import Mode, Workload; "
        "from simulation.seed import simulate; "
        f"kinds = {[(w.value, m.value, d) for w, m, d in kinds]}; "
        "print([simulate(3, workload=Workload(w), mode=Mode(m), uses_disks=d).history.digest()"
        " for w, m, d in kinds])"
    )
    there = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "4242"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout.strip() == str(here)
