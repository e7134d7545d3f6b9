"""What is told of a run: lines, events, the summary, the lag, and why a query failed."""

import io
import json
import threading
from collections.abc import Sequence

import pytest
from tests.peers.process import wait_until

from holdfast.errors import ConfigurationError, HoldfastError, RetryError, StopError
from holdfast.live_text import CLEAR_LINE
from holdfast.spark.pipelines.lag import NewestOffsets, lag_behind, lag_of
from holdfast.spark.pipelines.progress import (
    BatchDone,
    IdleTime,
    JsonReport,
    LiveLine,
    PlainLines,
    RunTotals,
    batch_line,
    idle_line,
    reporter_for,
    running_line,
    summary,
    summary_fields,
)
from holdfast.spark.pipelines.query_failure import QueryFailed, failure_of
from holdfast.spark.source import offsets
from holdfast.spark.source.inputs import DataLoss, Offsets, SourcePartition, TopicInfo
from holdfast.spark.source.offsets import SourceOffset
from holdfast.spark.source.options import parse_options

COUNTS = {"rows": 1_000, "kept": 900, "duplicates": 90, "late": 10, "diverted": 10}
ZERO = SourcePartition("t", 0, None)
ONE = SourcePartition("t", 1, None)


def done(batch_id: int = 0, state_rows: int = 900, *, was_known: bool = False) -> BatchDone:
    counts = {**COUNTS, "state_rows": state_rows, "state_bytes": 2 * 1024 * 1024}
    return BatchDone(batch_id=batch_id, seconds=0.5, counts=counts, files=2, was_known=was_known)


def test_counts_add_up_and_the_state_is_the_newest():
    totals = RunTotals(lag=7)
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
    totals = RunTotals()
    for batch_id in range(2):
        counts = {"rows": 10, "updated": 3, "late": 0, "diverted": 0, "state_rows": 5}
        aggregated = BatchDone(batch_id=batch_id, seconds=0.5, counts=counts, files=1)
        totals.add(aggregated)
        assert "3 keys updated" in batch_line(aggregated, totals)
    lines = dict(summary(totals))
    assert (lines["updated"], lines["rows in"]) == ("6", "20")
    assert "kept" not in lines
    totals = RunTotals()
    totals.add(BatchDone(batch_id=0, seconds=0.5, counts={"rows": 0, "fired": 4}, files=1))
    assert dict(summary(totals))["fired"] == "4"


def test_a_line_has_rate_lag_time_state_and_duplicates():
    totals = RunTotals(lag=1_234)
    totals.add(done())
    line = batch_line(done(), totals)
    for part in ("2,000 rows/s", "lag 1,234", "0.5 s", "state 900", "90 duplicates", "10 late"):
        assert part in line
    assert "committed before" in batch_line(done(was_known=True), totals)
    running = running_line(1, 3.2, totals)
    for part in ("batch 1 is running, 3 s", "2,000 rows/s", "lag 1,234", "state 900", "90 dup"):
        assert part in running
    assert running_line(0, 3.2, RunTotals()) == "batch 0 is running, 3 s"


def test_an_idle_run_says_since_when_and_how_far_it_is_behind():
    totals = RunTotals(lag=0)
    totals.add(done())
    idle = idle_line(IdleTime(since_ms=1_800_000_000_000, seconds=42.4), totals)
    assert idle.startswith("idle since 2027-01-1")
    assert idle.endswith(" (42 s), lag 0 records, total 1,000")
    totals.lag = 12
    waiting = idle_line(IdleTime(since_ms=0, seconds=3), totals)
    assert waiting.startswith("waiting since ")
    assert waiting.endswith(" (3 s), lag 12 records, total 1,000")
    totals.lag = None
    assert idle_line(IdleTime(since_ms=0, seconds=3), totals).endswith("lag unknown, total 1,000")


def test_the_lag_is_seen_on_a_terminal_of_80_columns():
    totals = RunTotals(lag=123_456_789)
    counts = {"rows": 1_000_000, "duplicates": 100_000}
    totals.add(BatchDone(batch_id=99_999, seconds=100.5, counts=counts, files=1))
    assert totals.last is not None
    for line in (
        batch_line(totals.last, totals),
        idle_line(IdleTime(since_ms=0, seconds=99_999), totals),
    ):
        assert "lag 123,456,789 records" in line[:79]


def test_a_log_has_a_line_each_minute_of_an_idle_run_and_a_terminal_changes_all_the_time():
    log, terminal = io.StringIO(), io.StringIO()
    plain, live = PlainLines(log), LiveLine(terminal)
    for reporter in (plain, live):
        for seconds in range(1, 131):
            reporter.idle(IdleTime(since_ms=0, seconds=seconds), RunTotals())
        reporter.batch(done(), RunTotals())
        reporter.idle(IdleTime(since_ms=140_000, seconds=59), RunTotals())
    lines = log.getvalue().splitlines()
    assert ["(60 s)" in lines[0], "(120 s)" in lines[1], "batch 0" in lines[2]] == [True] * 3
    assert len(lines) == 3
    assert terminal.getvalue().count("idle since") == 131


def test_events_have_the_figures_of_the_lines_and_what_is_told_is_no_event():
    events: list[tuple[str, dict[str, object]]] = []
    told = io.StringIO()
    reporter = JsonReport(lambda name, fields: events.append((name, dict(fields))), told)
    totals = RunTotals(lag=7)
    totals.add(done())
    reporter.tell("Spark's log: x")
    reporter.show("batch 0 is running")
    reporter.batch(done(), totals)
    reporter.idle(IdleTime(since_ms=5, seconds=30), totals)
    reporter.idle(IdleTime(since_ms=5, seconds=60.5), totals)
    assert told.getvalue() == "Spark's log: x\n"
    (batch_name, batch), (idle_name, idle) = events
    assert (batch_name, idle_name) == ("batch", "idle")
    assert batch["counts"] == {**COUNTS, "state_rows": 900, "state_bytes": 2 * 1024 * 1024}
    assert (batch["batch_id"], batch["rows_per_second"], batch["lag"]) == (0, 2_000, 7)
    assert (batch["total_rows"], batch["files"], batch["committed_before"]) == (1_000, 2, False)
    assert idle == {"idle_since_ms": 5, "seconds": 60.5, "total_rows": 1_000, "lag": 7}
    found = summary_fields(totals)
    assert (found["batches"], found["files"], found["lag"]) == (1, 2, 7)


def test_a_terminal_has_one_line_that_changes_and_a_pipe_has_lines():
    terminal, pipe = io.StringIO(), io.StringIO()
    live, plain = LiveLine(terminal), PlainLines(pipe)
    for reporter in (live, plain):
        reporter.tell("hello")
        reporter.batch(done(), RunTotals())
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
    assert lag_behind([json.dumps(end)], {ZERO: 7, ONE: 9}) == 2
    assert lag_behind([], {ZERO: 7}) is None, "nothing was read yet"
    assert lag_behind(['{"a": 1}'], {ZERO: 7}) is None


class SlowSource:
    """An input that answers when it is let, and not always."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.is_gone = False

    def topics(self) -> dict[str, TopicInfo]:
        assert self.may_answer.wait(60)
        if self.is_gone:
            raise RetryError("the store does not answer")
        return {"t": TopicInfo("t", None, 2), "u": TopicInfo("u", None, 1)}

    def latest(self, partitions: Sequence[SourcePartition]) -> Offsets:
        return {where: 10 + where.partition for where in partitions}


def test_a_source_that_does_not_answer_delays_nothing_and_leaves_the_lag_unknown():
    source = SlowSource()
    options = parse_options({"store": "x", "subscribe": "t"}, streaming=True)
    newest = NewestOffsets(source, options)  # pyright: ignore[reportArgumentType]
    assert newest.ask()
    assert newest.take() is None
    assert not newest.ask(), "the first look is still under way"
    source.may_answer.set()
    found: list[Offsets] = []

    def is_there() -> bool:
        answer = newest.take()
        found.extend([] if answer is None else [answer])
        return bool(found)

    wait_until(is_there, seconds_max=60, what="the answer")
    assert found == [{ZERO: 10, ONE: 11}]
    assert newest.take() is None, "it is taken once"
    source.is_gone = True
    wait_until(newest.ask, seconds_max=60, what="the end of the first look")
    wait_until(newest.ask, seconds_max=60, what="the end of the second look")
    assert newest.take() is None
    newest.close()


def test_a_source_that_stops_answering_is_told_once_and_so_is_its_return():
    source = SlowSource()
    options = parse_options({"store": "x", "subscribe": "t"}, streaming=True)
    newest = NewestOffsets(source, options)  # pyright: ignore[reportArgumentType]

    def next_news() -> str:
        found: list[str] = []

        def is_there() -> bool:
            found.extend(filter(None, [newest.news()]))
            return bool(found)

        wait_until(is_there, seconds_max=60, what="news of the source")
        assert newest.news() is None, "it is told once"
        return found[0]

    newest.note_silence()
    assert newest.news() is None, "nothing was asked"
    assert newest.ask()
    assert not newest.ask()
    assert newest.news() is None, "a look may take its time"
    newest.note_silence()
    assert next_news() == "the source does not answer; trying again (no answer yet)"
    source.may_answer.set()
    assert next_news() == "the source answers again"
    source.is_gone = True
    wait_until(newest.ask, seconds_max=60, what="the end of the first look")
    away = "the source does not answer; trying again (the store does not answer)"
    assert next_news() == away
    source.is_gone = False
    wait_until(newest.ask, seconds_max=60, what="the end of the second look")
    assert next_news() == "the source answers again"
    newest.close()


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            "org.apache.spark.SparkException: x\nTraceback (most recent call last):\n  File ...\n"
            "holdfast.spark.source.inputs.DataLoss: 5 records are gone\n\n\tat org.apache.spark",
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
