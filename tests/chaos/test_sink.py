"""Seed 001 end to end, bounded: members come, go and die, and all of the log has landed."""

import re
from pathlib import Path

import pytest
from tests.chaos.sink_incident import Figures, Incident, broker_for, differences
from tests.chaos.unprotected_sink import ACKED_LATE
from tests.peers.jars import PeerUnavailable
from tests.peers.process import wait_until

SECONDS_MAX = 150.0
STEP_SECONDS = 180.0


def run(
    folder: Path,
    kind: type[Incident] = Incident,
    *,
    is_kafka: bool,
    protocol: str,
    rebalances: int,
    module: str | None = None,
    age: str = "2s",
) -> Figures:
    try:
        broker = broker_for(folder / "broker", is_kafka=is_kafka)
    except PeerUnavailable as unavailable:
        pytest.skip(str(unavailable))
    try:
        broker.start()
        incident = kind(broker, folder, seed=7, protocol=protocol, module=module, age=age)
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


class AsInTheSeed(Incident):
    """Nothing at random: a second member comes, a late ack is taken, and both die before the new
    owner has landed anything."""

    def _harm(self) -> None:
        wait_until(lambda: self._said("assigned"), seconds_max=STEP_SECONDS, what="one has them")
        self._start()
        wait_until(lambda: self._said(ACKED_LATE), seconds_max=STEP_SECONDS, what="a late ack")
        for member in self._members:
            member.process.kill()
            self.figures.killed += 1
        self._members.clear()
        self._start()

    def _said(self, what: str) -> bool:
        """Whether a member that is alive has said so of some partition."""
        logs = [member.log.read_text() for member in self._members]
        return any(re.search(rf"sink\.{what} epoch=\d+ partitions=\w", log) for log in logs)


@pytest.mark.slow
@pytest.mark.peer
def test_with_the_late_ack_of_the_seed_records_are_lost(tmp_path: Path):
    figures = run(
        tmp_path,
        AsInTheSeed,
        is_kafka=True,
        protocol="consumer",
        rebalances=2,
        module="tests.chaos.unprotected_sink",
        age="30s",
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
