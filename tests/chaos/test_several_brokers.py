"""Short chaos of three brokers: `python -m tests.chaos.several_brokers`, one round."""

from pathlib import Path

import pytest
from tests.chaos import several_brokers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def test_each_record_is_transformed_exactly_once_while_brokers_are_killed_drained_and_stopped(
    tmp_path: Path,
):
    figures = several_brokers.run(tmp_path, rounds=1, seed=1)
    assert figures.problems == []
    assert figures.faults == {"killed": 1, "drained": 1, "stopped": 1}
    assert figures.output_read == figures.records > 1_000
    assert figures.transactions > 10
