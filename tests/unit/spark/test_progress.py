"""What a person is told of a run: lines, the summary, the lag, and why a query failed."""

import io

import pytest

from holdfast.errors import ConfigurationError, HoldfastError, RetryError, StopError
from holdfast.live_text import CLEAR_LINE
from holdfast.spark import offsets
from holdfast.spark.inputs import DataLoss, TopicPartition
from holdfast.spark.offsets import SourceOffset
from holdfast.spark.progress import (
    BatchDone,
    LiveLine,
    PlainLines,
    Totals,
    batch_line,
    lag_of,
    reporter_for,
    running_line,
    summary,
)
from holdfast.spark.query_failure import QueryFailed, failure_of

COUNTS = {"rows": 1_000, "kept": 900, "duplicates": 90, "late": 10, "diverted": 10}
ZERO = TopicPartition("t", 0, None)
ONE = TopicPartition("t", 1, None)


def done(batch_id: int = 0, state_rows: int = 900, *, was_known: bool = False) -> BatchDone:
    counts = {**COUNTS, "state_rows": state_rows, "state_bytes": 2 * 1024 * 1024}
    return BatchDone(batch_id=batch_id, seconds=0.5, counts=counts, files=2, was_known=was_known)


def test_counts_add_up_and_the_state_is_the_newest():
    totals = Totals(lag=7)
    totals.add(done(0, 900))
    totals.add(done(1, 1_700))
    totals.add(done(1, was_known=True))
    lines = dict(summary(totals))
    assert lines["rows in"] == "2,000"
    assert lines["kept"] == "1,800"
    assert lines["duplicates"] == "180"
    assert lines["late"] == "20 (20 diverted)"
    assert lines["files"] == "4 in 2 micro-batches"
    assert lines["state"] == "1,700 rows, 2.0 MiB"
    assert lines["lag"] == "7 records"


def test_what_aggregates_and_timers_give_is_summed_up_too():
    totals = Totals()
    for batch_id in range(2):
        counts = {"rows": 10, "updated": 3, "late": 0, "diverted": 0, "state_rows": 5}
        aggregated = BatchDone(batch_id=batch_id, seconds=0.5, counts=counts, files=1)
        totals.add(aggregated)
        assert "3 keys updated" in batch_line(aggregated, totals)
    lines = dict(summary(totals))
    assert (lines["updated"], lines["rows in"]) == ("6", "20")
    assert "kept" not in lines
    totals = Totals()
    totals.add(BatchDone(batch_id=0, seconds=0.5, counts={"rows": 0, "fired": 4}, files=1))
    assert dict(summary(totals))["fired"] == "4"


def test_a_line_has_rate_lag_time_state_and_duplicates():
    totals = Totals(lag=1_234)
    totals.add(done())
    line = batch_line(done(), totals)
    for part in ("2,000 rows/s", "lag 1,234", "0.5 s", "state 900", "90 duplicates", "10 late"):
        assert part in line
    assert "committed before" in batch_line(done(was_known=True), totals)
    running = running_line(1, 3.2, totals)
    for part in ("batch 1 runs, 3 s", "2,000 rows/s", "lag 1,234", "state 900", "90 duplicates"):
        assert part in running
    assert running_line(0, 3.2, Totals()) == "batch 0 runs, 3 s"


def test_a_terminal_has_one_line_that_changes_and_a_pipe_has_lines():
    terminal, pipe = io.StringIO(), io.StringIO()
    live, plain = LiveLine(terminal), PlainLines(pipe)
    for reporter in (live, plain):
        reporter.tell("hello")
        reporter.batch(done(), Totals())
        reporter.show("batch 1: 3 s")
        reporter.close()
    assert terminal.getvalue().count("\n") == 2
    assert terminal.getvalue().endswith(f"{CLEAR_LINE}batch 1: 3 s\n")
    assert pipe.getvalue().splitlines()[0] == "hello"
    assert len(pipe.getvalue().splitlines()) == 2
    assert isinstance(reporter_for(pipe), PlainLines)


def test_the_lag_is_what_is_between_the_end_and_the_newest_offsets():
    end = offsets.to_json(SourceOffset({ZERO: 5, ONE: 9}))
    latest = offsets.to_json(SourceOffset({ZERO: 15, ONE: 9}))
    assert lag_of({"sources": [{"endOffset": end, "latestOffset": latest}]}) == 10
    assert lag_of({"sources": [{"endOffset": end, "latestOffset": None}]}) is None
    assert lag_of({"sources": [{"endOffset": {"a": 1}, "latestOffset": {"a": 2}}]}) is None


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            "org.apache.spark.SparkException: x\nTraceback (most recent call last):\n  File ...\n"
            "holdfast.spark.inputs.DataLoss: 5 records are gone\n\n\tat org.apache.spark",
            DataLoss,
            "5 records are gone",
        ),
        (
            "Caused by: holdfast.errors.ConfigurationError: no such topic",
            ConfigurationError,
            "no such topic",
        ),
        ("Traceback\nValueError: bad row\n\tat x", QueryFailed, "ValueError: bad row"),
        ("something else", QueryFailed, "something else"),
        ("holdfast.nowhere.Odd: what", QueryFailed, "what"),
    ],
)
def test_an_error_of_ours_is_found_in_the_traces_of_spark(
    text: str, kind: type[HoldfastError], message: str
):
    found = failure_of(RuntimeError(text))
    assert type(found) is kind
    assert message in str(found)


def test_an_error_that_is_at_hand_is_taken_as_it_is():
    wrapped = RuntimeError("wrapped")
    wrapped.__cause__ = StopError("look")
    assert failure_of(wrapped) is wrapped.__cause__


def test_a_python_worker_that_was_late_is_a_reason_to_start_again():
    text = "[STREAM_FAILED] Query [id = 1] terminated: Python worker failed to connect back."
    found = failure_of(RuntimeError(text))
    assert isinstance(found, RetryError)
    assert "start it again" in str(found)
