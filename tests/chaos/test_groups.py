"""Short chaos of a group: `python -m tests.chaos.groups`, with fewer steps."""

from pathlib import Path

import pytest
from tests.chaos import groups
from tests.peers.holdfast import HoldfastBroker
from tests.support.client_process import PROGRAMS, why_missing

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_group_of_all_clients_comes_to_rest_and_skips_no_record(tmp_path: Path):
    programs = [program for program in PROGRAMS if why_missing(program) is None]
    broker = HoldfastBroker(tmp_path / "broker")
    figures = groups.run(tmp_path, steps=6, seed=2, broker=broker, programs=programs)
    assert figures.problems == []
    assert sum(figures.happened.values()) == 6
    assert figures.reads >= figures.records > 0
