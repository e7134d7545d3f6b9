"""The demo's verdict, on hand-made runs: each thing that can go wrong is counted."""

import dataclasses
from typing import Any

from examples.demo_clients import Ack, Produced, Seen, Watched
from examples.demo_verdict import Verdict, judge

ACKS = [Ack(sequence=i, partition=i % 2, offset=i // 2, at=i / 10) for i in range(8)]
COLD = [Seen(partition=i % 2, offset=i // 2, sequence=i) for i in range(8)]


def verdict(
    *, acks: list[Ack] = ACKS, cold: list[Seen] = COLD, live: list[Seen] | None = None, **more: Any
) -> Verdict:
    watched = Watched(more.get("asked", 5), more.get("rewound", []))
    produced = Produced(more.get("sent", 8), acks, [])
    return judge(produced, cold, cold if live is None else live, watched, more.get("killed_at", []))


def test_a_run_in_which_all_came_back_is_clean():
    assert verdict().is_clean


def test_a_run_without_acknowledgements_or_questions_is_not_clean():
    assert not verdict(acks=[], cold=[], sent=0).is_clean
    assert not verdict(asked=0).is_clean


def test_an_acknowledged_record_that_is_not_read_back_is_lost():
    found = verdict(cold=COLD[:-1])
    assert found.lost == 1
    assert not found.is_clean


def test_another_record_at_an_acknowledged_offset_is_a_loss():
    cold = [*COLD[:-1], COLD[-1]._replace(sequence=99)]
    assert verdict(cold=cold).lost == 1


def test_a_record_that_is_there_twice_is_doubled():
    found = verdict(cold=[*COLD, Seen(partition=1, offset=4, sequence=7)])
    assert found.doubled == 1
    assert not found.is_clean


def test_a_partition_whose_numbers_fall_is_out_of_order():
    cold = [record._replace(sequence=7 - record.sequence) for record in COLD]
    assert verdict(cold=cold).out_of_order == 6


def test_a_reader_that_saw_something_else_is_counted():
    assert verdict(live=COLD[1:]).different_live == 1
    assert verdict(live=[*COLD, COLD[0]]).different_live == 1


def test_a_record_that_was_never_acknowledged_is_counted():
    found = verdict(sent=9)
    assert found.failed == 1
    assert not found.is_clean


def test_a_watermark_that_went_back_is_counted():
    assert verdict(rewound=["partition 0: 5 -> 3"]).rewound == 1
    assert not verdict(rewound=["partition 0: 5 -> 3"]).is_clean


def test_the_time_without_service_is_the_gap_around_the_kill():
    acks = [*ACKS[:4], *(ack._replace(at=ack.at + 2.0) for ack in ACKS[4:])]
    (gap,) = verdict(acks=acks, killed_at=[0.35]).without_service_s
    assert abs(gap - 2.1) < 1e-6
    assert dataclasses.replace(verdict(), without_service_s=[gap]).is_clean
