"""Log lines that strangers cause: a few of each kind, and a count of the others."""

import logging

import pytest

from holdfast.server.events import LimitedEvents


def test_events_beyond_the_bound_are_counted_and_told_when_the_window_is_over(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.INFO)
    events = LimitedEvents(lines_max=3, window_seconds=10)
    for i in range(5_000):
        events.event(i / 1_000, logging.WARNING, "protocol_violation", peer=i)
    events.event(6, logging.INFO, "connection_ended", peer=1)
    assert len(caplog.records) == 3 + 1
    events.tell(11)
    last = caplog.records[-1]
    assert last.getMessage() == (
        "events_left_out name_of_event='protocol_violation' count=4997 seconds=11.0"
    )
    assert last.levelno == logging.WARNING
    events.tell(30)
    events.event(31, logging.WARNING, "protocol_violation", peer=1)
    assert len(caplog.records) == 6
