"""Statuses of members in other processes are summed up whole."""

from dataclasses import replace

import pytest
from tests.unit.sink.statuses import status

from holdfast.sink.metrics import COUNTERS
from holdfast.sink.reports import line_of, read_line, status_in, summed


@pytest.mark.parametrize("field", [field for _, _, field in COUNTERS])
def test_each_counter_that_is_shown_is_summed_over_running_and_ended_members(field: str):
    running = replace(status(), **{field: 2})
    ended = replace(status(), **{field: 3})
    sent = [status_in(read_line(line_of(1, each))) for each in (running, running, ended)]
    assert getattr(summed(sent[:2], sent[2:]), field) == 7
