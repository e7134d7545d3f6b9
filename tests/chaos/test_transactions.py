"""Short chaos of transactions: `python -m tests.chaos.transactions`, with fewer kills."""

from pathlib import Path

import pytest
from tests.chaos import transactions
from tests.peers.holdfast import HoldfastBroker
from tests.peers.jars import PeerUnavailable
from tests.peers.kafka import KafkaBroker
from tests.support.client_process import PROGRAMS, why_missing

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def check(figures: transactions.Figures, *, kills: int, programs: int) -> None:
    assert figures.problems == []
    assert figures.kills >= kills
    assert list(figures.outputs_read.values()) == [figures.records] * programs


def test_each_record_is_transformed_exactly_once_through_kills_of_workers_and_broker(
    tmp_path: Path,
):
    programs = [program for program in PROGRAMS if why_missing(program) is None]
    broker = HoldfastBroker(tmp_path / "broker")
    figures = transactions.run(
        tmp_path, kills=6, seed=6, broker=broker, programs=programs, broker_every=3, zombie_every=4
    )
    check(figures, kills=6, programs=len(programs))
    assert figures.broker_kills > 0
    assert figures.zombies_ended == figures.zombies > 0


@pytest.mark.peer
@pytest.mark.foreign
def test_so_it_is_on_apache_kafka_through_kills_of_workers(tmp_path: Path):
    """Kills of its broker are in the long form: a worker may then wait for minutes."""
    try:
        broker = KafkaBroker(tmp_path / "broker")
    except PeerUnavailable as unavailable:
        pytest.skip(str(unavailable))
    programs = [program for program in PROGRAMS if why_missing(program) is None]
    figures = transactions.run(
        tmp_path, kills=3, seed=3, broker=broker, programs=programs, broker_every=0, zombie_every=0
    )
    check(figures, kills=3, programs=len(programs))
