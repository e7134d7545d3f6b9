"""The log of simulated brokers: its errors count, and afterwards all is as it was."""

import logging

import pytest
from simulation.error_log import errors_logged_to

log = logging.getLogger("holdfast.of_this_test")


def test_errors_count_and_nothing_is_printed_meanwhile(caplog: pytest.LogCaptureFixture):
    crashes: list[str] = []
    with errors_logged_to(crashes):
        log.warning("not an error")
        log.error("an error")
    assert crashes == ["an error: None"]
    assert not caplog.records


def test_warnings_that_were_silent_meanwhile_are_told_again(caplog: pytest.LogCaptureFixture):
    with errors_logged_to([]):
        log.warning("not told")
    log.warning("told")
    assert [record.getMessage() for record in caplog.records] == ["told"]
