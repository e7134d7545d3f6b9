"""Short chaos of Kafka Streams: runs of `python -m tests.chaos.streams_kills` with few kills."""

import pytest
from tests.chaos.streams_kills import PARTS
from tests.chaos.streams_run import Run, TurningBroker
from tests.peers.jars import PeerUnavailable

pytestmark = pytest.mark.slow


@pytest.mark.timeout(240)
def test_an_application_and_its_broker_killed_within_commits_give_the_output_of_the_oracle(
    tmp_path,
):
    part = PARTS["four lanes"]
    broker = TurningBroker(tmp_path / "broker", arguments=["--lanes", str(part.lanes)])
    try:
        run = Run(tmp_path, broker, seed=1, settings=part.settings, per_second=400)
    except PeerUnavailable as unavailable:
        pytest.skip(str(unavailable))
    try:
        run.begin()
        run.kill("app", "hold before commit")
        assert run.come_back()
        run.kill("broker", "pass before commit")
        assert run.come_back()
        run.kill("both", "hold after commit")
        assert run.come_back()
        run.finish()
        figures = run.check()
    finally:
        run.stop()
    assert figures.problems == []
    assert figures.kills == 4
    assert figures.missed == 0
    assert figures.rows == figures.ids > 0
    found = bool(figures.uncommitted_problems)
    assert found or not figures.aborted_rows, "aborted records pass the oracle"
