"""What a person sees of a sink: on a terminal, in a log, and at the end."""

import io

from tests.unit.sink.statuses import partition, status

from holdfast.cli.sink_progress import (
    SinkProgress,
    live_lines,
    plain_line,
    records_between,
    summary,
    summary_fields,
)
from holdfast.environment import SeededEnvironment, VirtualClock
from holdfast.live_text import LINE_UP
from holdfast.protocol.consumer_protocol import TopicPartition

MIB = 1024 * 1024
MEMORY = 256 * MIB
ORDERS = TopicPartition("orders", 0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def progress(stream: io.StringIO) -> tuple[SinkProgress, VirtualClock]:
    clock = VirtualClock()
    environment = SeededEnvironment(seed=0, clock=clock)
    return SinkProgress(stream, memory_bytes=MEMORY, environment=environment), clock


def test_records_are_counted_of_partitions_whose_place_was_known():
    new, unknown = TopicPartition("orders", 1), TopicPartition("orders", 2)
    before = status(partitions={ORDERS: partition(), unknown: partition(position=0, landed=None)})
    after = status(
        partitions={ORDERS: partition(position=600), new: partition(), unknown: partition()}
    )
    assert records_between(before, after) == 500
    assert records_between(after, before) == 0


def test_rates_are_those_of_the_last_seconds_also_where_partitions_come_late():
    log = io.StringIO()
    shown, clock = progress(log)
    shown.report(status(state="joining", partitions={}, bytes_fetched=0))
    for second in range(1, 11):
        clock.seconds = second
        there = {ORDERS: partition(position=500 * second)} if second > 5 else {}
        shown.report(status(partitions=there, bytes_fetched=1_000_000 * second))
    assert "; 200 records/s, 1.0 MB/s, " in log.getvalue().splitlines()[-1]


def test_the_lines_of_a_terminal_say_what_is_on_the_way():
    assert live_lines(status(bad_records=1), (12_345.6, 7_890_000.0), MEMORY, 120) == [
        "stable, 1 partition: 12,346 records/s, 7.9 MB/s, lag 50 records",
        "1 open batch of 2.0 KiB, 1 upload, memory 64.0 MiB of 256.0 MiB",
        "landed 1,080 records in 2 objects, 1 bad record",
        "newest orders+0+00000000000000000000.jsonl.zst",
    ]


def test_what_is_wrong_is_said_and_the_rest_of_many_is_counted():
    many = {TopicPartition("orders", n): partition(problem="bad") for n in range(4)}
    now = status(partitions=many, store_problem="403: credentials", fetch_paused=True)
    lines = live_lines(now, (0.0, 0.0), MEMORY, 120)
    assert lines[1].endswith("256.0 MiB, fetching pauses")
    assert lines[-4:] == [
        "PROBLEM store: 403: credentials",
        "PROBLEM orders-0: bad",
        "PROBLEM orders-1: bad",
        "PROBLEM and 2 more",
    ]
    assert plain_line(now, (0.0, 0.0), MEMORY).endswith(
        "PROBLEM store: 403: credentials (and 4 more)"
    )


def test_a_long_problem_is_broken_into_lines_so_that_its_remedy_can_be_read():
    now = status(store_problem="create of 'key' in s3://lake: 403 Forbidden; check the credentials")
    lines = live_lines(now, (0.0, 0.0), MEMORY, 40)
    assert lines[-1].startswith("  ")
    assert " ".join(" ".join(lines).split()).endswith("403 Forbidden; check the credentials")
    assert all(len(line) <= 40 for line in lines if line.startswith(("PROBLEM", "  ")))


def test_a_member_without_partitions_has_an_unknown_lag():
    now = status(state="joining", partitions={}, last_landed=None, records_landed=0)
    assert plain_line(now, (0.0, 0.0), MEMORY).startswith(
        "joining, 0 partitions; 0 records/s, 0.0 MB/s, lag unknown; 0 open batches of 0 B, "
    )


def test_a_log_has_a_line_every_ten_seconds():
    log = io.StringIO()
    shown, clock = progress(log)
    for second in range(31):
        clock.seconds = second
        moved = {ORDERS: partition(position=100 + 10 * second)}
        shown.report(status(partitions=moved))
    lines = log.getvalue().splitlines()
    assert len(lines) == 4
    assert [line.split("; ")[1].split(",")[0] for line in lines] == [
        "0 records/s",
        *["10 records/s"] * 3,
    ]


def test_a_log_says_at_once_that_a_problem_came_and_that_it_went():
    log = io.StringIO()
    shown, clock = progress(log)
    shown.report(status())
    for second, problem in [(1, "403, for 0 s"), (2, "403, for 1 s"), (3, None)]:
        clock.seconds = second
        shown.report(status(store_problem=problem))
    assert log.getvalue().splitlines()[1:] == ["problem: store: 403, for 0 s", "solved: store"]


def test_events_have_the_figures_of_the_lines_and_a_terminal_has_none_of_them():
    terminal = Terminal()
    events: list[tuple[str, dict[str, object]]] = []
    clock = VirtualClock()
    shown = SinkProgress(
        terminal,
        memory_bytes=MEMORY,
        environment=SeededEnvironment(seed=0, clock=clock),
        emit=lambda name, fields: events.append((name, dict(fields))),
    )
    for second in range(11):
        clock.seconds = second
        problem = "403" if second == 5 else None
        shown.report(
            status(partitions={ORDERS: partition(position=100 + second)}, store_problem=problem)
        )
    assert terminal.getvalue() == ""
    assert [name for name, _ in events] == ["status", "problem", "solved", "status"]
    assert events[1][1] == {"of": "store", "text": "store: 403"}
    last = events[-1][1]
    assert (last["state"], last["partitions"], last["lag"]) == ("stable", 1, 50)
    assert (last["records_per_second"], last["memory_bytes"]) == (1.0, MEMORY)
    assert (last["records_landed"], last["objects_landed"]) == (1_080, 2)
    found = summary_fields(status(), 10.0)
    assert (found["records_landed"], found["seconds"], found["problems"]) == (1_080, 10.0, [])


def test_a_terminal_is_drawn_over_and_what_is_told_stays_above():
    terminal = Terminal()
    shown, clock = progress(terminal)
    shown.report(status())
    before = terminal.getvalue()
    assert before.count("\n") == 3
    clock.seconds = 0.1
    shown.report(status(records_landed=5_000))
    assert terminal.getvalue() == before
    clock.seconds = 0.6
    shown.report(status(records_landed=5_000))
    assert terminal.getvalue()[len(before) :].count(LINE_UP) == 3
    assert "landed 5,000 records" in terminal.getvalue()
    shown.tell("stopping")
    assert "stopping\nstable" in terminal.getvalue()
    shown.close()
    assert terminal.getvalue().endswith("\n")


def test_the_summary_says_what_landed_and_what_did_not():
    quiet = dict(summary(status(), 10.0))
    assert quiet["landed"] == "1,080 records in 2 objects, 976.6 KiB"
    assert quiet["rate"] == "108 records/s"
    assert quiet["lag"] == "50 records"
    assert "abandoned" not in quiet
    assert "problem" not in quiet
    rough = dict(
        summary(status(batches_abandoned=2, objects_found=1, broker_problem="nobody"), 0.0)
    )
    assert rough["found"] == "1 object that other members had landed"
    assert rough["abandoned"].startswith("2 batches")
    assert rough["problem"] == "broker: nobody"
    assert rough["rate"] == "0 records/s"
