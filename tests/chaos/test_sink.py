"""Seed 001 end to end, bounded: members come, go and die, and all of the log has landed."""

from pathlib import Path

import pytest
from tests.chaos.sink_incident import Figures, Incident, broker_for, differences
from tests.peers.jars import PeerUnavailable

SECONDS_MAX = 150.0


def run(
    folder: Path, *, is_kafka: bool, protocol: str, rebalances: int, module: str | None = None
) -> Figures:
    try:
        broker = broker_for(folder / "broker", is_kafka=is_kafka)
    except PeerUnavailable as unavailable:
        pytest.skip(str(unavailable))
    try:
        incident = Incident(broker.start(), folder, seed=7, protocol=protocol, module=module)
        return incident.run(rebalances=rebalances, seconds_max=SECONDS_MAX)
    finally:
        broker.stop()


def check(figures: Figures) -> None:
    assert figures.problems == []
    assert figures.landed == figures.produced > 1_000
    assert figures.killed + figures.paused + figures.ended > 0


@pytest.mark.slow
def test_members_of_the_consumer_protocol_come_go_and_die_and_each_record_has_landed_once(
    tmp_path: Path,
):
    check(run(tmp_path, is_kafka=False, protocol="consumer", rebalances=8))


@pytest.mark.slow
@pytest.mark.peer
def test_so_it_is_with_the_classic_protocol_on_apache_kafka(tmp_path: Path):
    check(run(tmp_path, is_kafka=True, protocol="classic", rebalances=6))


@pytest.mark.slow
@pytest.mark.peer
def test_with_the_late_ack_of_the_seed_records_are_lost(tmp_path: Path):
    figures = run(
        tmp_path,
        is_kafka=True,
        protocol="consumer",
        rebalances=12,
        module="tests.chaos.unprotected_sink",
    )
    assert any(" lost, " in problem for problem in figures.problems), figures.lines()


def test_a_record_that_is_missing_extra_or_changed_is_named():
    log = {0: b"a", 1: b"b", 2: b"c"}
    assert differences(3, log, dict(log)) == []
    assert differences(3, log, {0: b"a", 2: b"x", 5: b"e"}) == [
        "partition 3: 1 records lost, the first at offset 1",
        "partition 3: 1 records not in the log, the first at offset 5",
        "partition 3: 1 records changed, the first at offset 2",
    ]
