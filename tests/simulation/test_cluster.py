"""Three brokers that share the lanes and hear each other, under seeded faults."""

import pytest
from simulation.broker_process import BrokerProcess
from simulation.clients.coordination import TRANSACTIONAL, Mode, Workload
from simulation.cluster_fleet import BROKER_MACHINES
from simulation.seed import SeedOutcome, Simulation, simulate

from holdfast.verify.history import LandedKind, MarkerKind, Outcome, Produce
from holdfast.verify.vocabulary import FetchOffsets

SEEDS = range(16)


@pytest.fixture(scope="module")
def outcomes() -> list[SeedOutcome]:
    return [
        simulate(seed, workload=workload, mode=Mode.CLUSTER)
        for workload in (Workload.RECORDS, Workload.GROUPS)
        for seed in SEEDS
    ]


def test_no_seed_breaks_a_promise_and_every_lane_finds_an_owner_again(outcomes: list[SeedOutcome]):
    for outcome in outcomes:
        where = f"--seed {outcome.seed} --workload {outcome.workload.value} --mode cluster"
        assert not [str(v) for v in outcome.violations], where
        assert not outcome.liveness, where


def test_most_seeds_prove_something(outcomes: list[SeedOutcome]):
    assert sum(outcome.void is not None for outcome in outcomes) < len(outcomes) / 4


def test_lanes_are_shared_by_three_brokers_and_handed_over(outcomes: list[SeedOutcome]):
    for outcome in outcomes:
        owners = {
            landing.process.partition(".")[0]
            for landing in outcome.history.landings
            if landing.kind is LandedKind.CLAIM
        }
        assert len(owners) >= 2, outcome.seed
    landings = [landing for outcome in outcomes for landing in outcome.history.landings]
    assert sum(landing.kind is LandedKind.RELEASE for landing in landings) > len(outcomes)
    assert sum(outcome.hand_offs for outcome in outcomes) > 5 * len(outcomes)


def test_brokers_are_killed_parted_and_doubled(outcomes: list[SeedOutcome]):
    markers = [marker for outcome in outcomes for marker in outcome.history.markers]
    assert sum(marker.kind is MarkerKind.KILL for marker in markers) > 5
    assert sum(marker.detail.startswith("parted") for marker in markers) > 5
    assert sum(marker.detail.startswith("cut") for marker in markers) > 5


def test_old_leaders_are_asked_and_refuse(outcomes: list[SeedOutcome]):
    calls = [call for outcome in outcomes for call in outcome.history.calls]
    errors = [call.error for call in calls]
    assert errors.count("NOT_LEADER_OR_FOLLOWER") > 50
    assert errors.count("NOT_COORDINATOR") > 5
    for kind in (Produce, FetchOffsets):
        done = [c for c in calls if isinstance(c.operation, kind) and c.outcome is Outcome.OK]
        assert len({call.broker.partition(".")[0] for call in done}) == 3, kind


@pytest.fixture(scope="module")
def with_disks() -> list[SeedOutcome]:
    return [
        simulate(seed, workload=Workload.RECORDS, mode=Mode.CLUSTER, uses_disks=True)
        for seed in (*range(100, 112), 118, 123, 133, 134, 136, 145)
    ]


def test_what_is_acknowledged_from_three_disks_is_there_when_each_machine_had_its_turn(
    with_disks: list[SeedOutcome],
):
    for outcome in with_disks:
        where = f"--seed {outcome.seed} --workload records --mode cluster --disks"
        assert not [str(v) for v in outcome.violations], where
        assert not outcome.liveness, where
    frames = [frame for outcome in with_disks for frame in outcome.history.frames]
    assert {frame.disk for frame in frames} == set(BROKER_MACHINES)
    assert len(frames) > 50
    details = {m.detail for outcome in with_disks for m in outcome.history.markers}
    assert {"disk full", "disk slow", "disk lost"} <= details
    assert any(land.given_up for outcome in with_disks for land in outcome.history.landings)


def test_every_process_of_a_broker_has_the_disk_of_its_machine(with_disks: list[SeedOutcome]):
    starts = [
        (marker.process.partition(".")[0], marker.detail)
        for outcome in with_disks
        for marker in outcome.history.markers
        if marker.kind is MarkerKind.START and marker.detail.startswith("machine")
    ]
    assert len(set(starts)) == len(BROKER_MACHINES) < len(starts)


def test_a_disk_is_taken_in_by_a_later_owner_of_the_lane(with_disks: list[SeedOutcome]):
    taken_in = 0
    for outcome in with_disks:
        framed = {
            (frame.lane, append): frame.claim
            for frame in outcome.history.frames
            for append in frame.appends
        }
        taken_in += sum(
            framed.get((landing.lane, append), landing.claim) < landing.claim
            for landing in outcome.history.landings
            for append in landing.appends
        )
    assert taken_in > 3


def test_a_seed_draws_how_its_brokers_stand_to_each_other():
    drawn = [Simulation(seed, BrokerProcess) for seed in range(60)]
    assert {each.mode for each in drawn} == set(Mode)
    records = [each.mode for each in drawn if each.workload is Workload.RECORDS]
    assert records.count(Mode.CLUSTER) > records.count(Mode.ALONE) > 0
    assert {each.mode for each in drawn if each.workload in TRANSACTIONAL} == set(Mode)
