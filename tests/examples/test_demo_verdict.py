"""The demo's verdict, on hand-made runs: each thing that can go wrong is counted."""

import dataclasses
from collections import Counter
from typing import Any

from examples.demo_clients import Ack, Produced, ReadBack, Seen, Watched, order_of
from examples.demo_verdict import LakeSeen, LogSeen, Verdict, judge

ACKS = [Ack(sequence=i, partition=i % 2, offset=i // 2, at=i / 10) for i in range(8)]
COLD = [Seen(partition=i % 2, offset=i // 2, sequence=i) for i in range(8)]
IDS = Counter({f"order-{order_of(i)}": 1 for i in range(8)})
POSITIONS = [{0: 0, 1: 0}, {0: 2, 1: 2}, {0: 4, 1: 4}]


def verdict(**changed: Any) -> Verdict:
    """The verdict on a clean run with some things changed."""
    cold = changed.get("cold", COLD)
    log = LogSeen(
        produced=Produced(changed.get("sent", 8), changed.get("acks", ACKS), []),
        cold=cold,
        live=changed.get("live", cold),
        watermarks=Watched(changed.get("asked", 5), changed.get("rewound", [])),
        fetched=ReadBack(changed.get("fetches", 5), changed.get("hidden", [])),
        killed_at=changed.get("killed_at", []),
    )
    logs = [changed.get("positions", POSITIONS)]
    return judge(log, LakeSeen(ids=changed.get("ids", IDS), repeats=1, logs=logs))


def test_a_run_in_which_all_came_back_is_clean():
    assert verdict().is_clean
    assert (verdict().acked, verdict().ids, verdict().landed) == (8, 7, 7)


def test_a_run_in_which_nothing_was_looked_at_is_not_clean():
    assert not verdict(acks=[], cold=[], sent=0).is_clean
    assert not verdict(asked=0).is_clean
    assert not verdict(fetches=0).is_clean
    assert not verdict(positions=[]).is_clean


def test_one_record_in_five_says_an_order_again():
    assert sum(order_of(i) != i for i in range(1000)) == 200
    assert all(order_of(order_of(i)) == order_of(i) <= i for i in range(1000))


def test_an_acknowledged_record_that_is_not_read_back_is_lost():
    found = verdict(cold=COLD[:-1], ids=IDS)
    assert found.lost == 1
    assert not found.is_clean


def test_another_record_at_an_acknowledged_offset_is_a_loss():
    cold = [*COLD[:-1], COLD[-1]._replace(sequence=98)]
    assert verdict(cold=cold).lost == 1


def test_an_order_that_has_not_landed_is_lost():
    found = verdict(ids=IDS - Counter(["order-5"]))
    assert found.lost == 1
    assert not found.is_clean


def test_a_record_that_the_next_fetch_did_not_give_is_hidden():
    found = verdict(hidden=["record 3"])
    assert found.hidden == 1
    assert not found.is_clean


def test_a_record_that_is_in_the_log_twice_is_doubled():
    found = verdict(cold=[*COLD, Seen(partition=1, offset=4, sequence=7)])
    assert found.doubled == 1
    assert not found.is_clean


def test_an_order_that_landed_twice_is_doubled():
    found = verdict(ids=IDS + Counter(["order-5"]))
    assert found.doubled == 1
    assert not found.is_clean


def test_an_order_that_landed_and_is_not_in_the_log_is_counted():
    found = verdict(ids=IDS + Counter(["order-77"]))
    assert found.others["landed and not in the log"] == 1
    assert not found.is_clean


def test_a_partition_whose_numbers_fall_is_out_of_order():
    cold = [record._replace(sequence=7 - record.sequence) for record in COLD]
    assert verdict(cold=cold).others["out of order in the log"] == 6


def test_a_reader_that_saw_something_else_is_counted():
    kind = "different for the reader that was there all the time"
    assert verdict(live=COLD[1:]).others[kind] == 1
    assert verdict(live=[*COLD, COLD[0]]).others[kind] == 1


def test_a_record_that_was_never_acknowledged_is_counted():
    found = verdict(sent=9)
    assert found.others["sent and never acknowledged"] == 1
    assert not found.is_clean


def test_a_watermark_that_went_back_is_counted():
    assert verdict(rewound=["partition 0: 5 -> 3"]).rewound == 1
    assert not verdict(rewound=["partition 0: 5 -> 3"]).is_clean


def test_a_source_offset_that_went_back_or_vanished_is_counted():
    assert verdict(positions=[{0: 2}, {0: 1}, {0: 5}]).rewound == 1
    assert verdict(positions=[{0: 2, 1: 1}, {0: 2}]).rewound == 1
    assert verdict(positions=[{0: 2}, {0: 2, 1: 1}]).rewound == 0


def test_the_time_without_service_is_the_gap_around_the_kill():
    acks = [*ACKS[:4], *(ack._replace(at=ack.at + 2.0) for ack in ACKS[4:])]
    (gap,) = verdict(acks=acks, killed_at=[0.35]).without_service_s
    assert abs(gap - 2.2) < 1e-6
    assert dataclasses.replace(verdict(), without_service_s=[gap]).is_clean


def test_a_partition_that_waits_is_not_hidden_by_one_that_another_broker_serves():
    waits = [Ack(n, 0, n, at) for n, at in enumerate((0.1, 0.3, 2.4))]
    served = [Ack(n + 3, 1, n, n / 10) for n in range(30)]
    (gap,) = verdict(acks=waits + served, killed_at=[0.35]).without_service_s
    assert abs(gap - 2.1) < 1e-6
