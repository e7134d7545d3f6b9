"""SIGKILLs and a zombie of a query into a topic: a consumer sees each record once.

The short form of `python -m tests.chaos.spark_topic_kills`, which also plants a bug.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chaos.spark_process import Spares
from tests.chaos.spark_topic_oracle import check_told, check_topic
from tests.chaos.spark_topic_run import REFUSALS, TopicRun
from tests.peers.holdfast import HoldfastBroker

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DRIVERS = 3
ACKED = [(0, 0), (0, 1), (1, 0)]


@pytest.fixture(scope="module")
def spares(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spares]:
    started = Spares(tmp_path_factory.mktemp("spares"), most=DRIVERS)
    yield started
    started.stop()


@pytest.mark.timeout(600)
def test_a_consumer_sees_each_record_once_after_a_kill_and_beside_a_zombie(
    tmp_path: Path, holdfast_broker: HoldfastBroker, topic: str, spares: Spares
):
    run = TopicRun(tmp_path, holdfast_broker, topic=topic[-40:], seed=9, spares=spares)
    try:
        run.begin()
        run.kill("driver", "ended")
        run.zombie("end")
        run.finish()
    finally:
        run.stop()
    figures = run.check()
    assert figures.problems == []
    # The sink or Spark's own log refuses it, whichever the zombie asks first; the sink may do so
    # before the zombie has written anything. The oracle has seen that none of its records counts.
    assert figures.zombies.total() == 1
    assert figures.zombies.keys() <= set(REFUSALS.values())


def test_the_oracle_takes_each_record_once_in_the_order_of_its_partition():
    assert check_topic(ACKED, [["0-0", "1-0", "0-1"], []]) == []
    assert check_topic(ACKED, [["1-0"], ["0-0", "0-1"]]) == []


def test_the_oracle_names_what_is_lost_doubled_made_up_or_out_of_order():
    assert check_topic(ACKED, [["0-0", "1-0"]]) == ["lost: 1: 0-1"]
    assert check_topic(ACKED, [["0-0", "0-1", "1-0"], ["1-0"]]) == ["doubled: 1: 1-0"]
    assert check_topic(ACKED, [["0-0", "0-1", "1-0", "2-7"]]) == ["phantom: 1: 2-7"]
    assert check_topic(ACKED, [["0-1", "0-0", "1-0"]]) == ["out of order: 0-0 after 0-1"]


def test_the_oracle_names_a_group_that_was_told_too_early():
    assert check_told({0: 3}, {0: 3, 1: 4}) == []
    assert check_told({0: 4}, {0: 3})[0].startswith("told too early: partition 0 at 4")
