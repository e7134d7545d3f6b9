"""Checkers on hand-written histories of disks: what counts as durable, and what may be given up."""

import pytest
from tests.unit.verify.scripts import P, Script

from holdfast.verify.checkers import Anomaly
from holdfast.verify.history import Append, GivenUp, LandedKind, PartitionRules, Produced


def spooled(script: Script, base_offset: int, *values: int) -> None:
    script.spooled(disk="d1", lane=1, claim=0, appends=(Append(P, base_offset, values),))


def started() -> Script:
    script = Script()
    script.lands(0, kind=LandedKind.CLAIM)
    return script


def test_an_ack_of_what_is_on_a_disk_and_later_in_the_store_is_clean():
    script = started()
    first = script.send(1)
    spooled(script, 0, 1)
    script.ok(first, Produced(0), 0.0)
    script.fetched(0, (0, 1), hw=1)
    script.lands(1, Append(P, 0, (1,)))
    script.cold((0, 1))
    assert script.kinds() == set()


@pytest.mark.parametrize("seen", ["ack", "fetch"])
def test_before_the_frame_is_on_the_disk_nothing_of_it_may_be_seen(seen: str):
    script = started()
    first = script.send(1)
    if seen == "ack":
        script.ok(first, Produced(0), 0.0)
    else:
        script.fetched(0, (0, 1), hw=1)
    spooled(script, 0, 1)
    script.lands(1, Append(P, 0, (1,)))
    script.cold((0, 1))
    expected = Anomaly.ACK_NOT_DURABLE if seen == "ack" else Anomaly.READ_NOT_DURABLE
    assert script.kinds() == {expected}


def test_what_is_on_a_disk_alone_in_the_end_is_lost():
    script = started()
    first = script.send(1)
    spooled(script, 0, 1)
    script.ok(first, Produced(0), 0.0)
    script.cold()
    assert Anomaly.LOST_WRITE in script.kinds()


def gives_up(script: Script) -> None:
    """The log goes on at 10, whatever a disk has below that."""
    script.landed(
        lane=1,
        number=1,
        kind=LandedKind.DATA,
        claim=0,
        writer="w1",
        previous="h0",
        digest="h1",
        given_up=(GivenUp(P, 0, 9),),
    )


def gone_on(*, unclean: bool) -> Script:
    """Offsets 0 to 9 may be on a disk; one of them was acked; the log goes on at 10."""
    script = started()
    script.history.rules[P] = PartitionRules(unclean=unclean)
    first = script.send(1)
    spooled(script, 0, 1)
    script.ok(first, Produced(0), 0.0)
    gives_up(script)
    return script


@pytest.mark.parametrize("unclean", [True, False])
def test_what_was_given_up_may_be_missing_only_where_that_is_allowed(unclean: bool):
    script = gone_on(unclean=unclean)
    script.latest(10)
    script.cold(end=10)
    assert script.kinds() == (set() if unclean else {Anomaly.LOST_WRITE})


def test_an_acked_record_outside_of_what_was_given_up_is_lost_all_the_same():
    script = gone_on(unclean=True)
    second = script.send(2)
    spooled(script, 10, 2)
    script.ok(second, Produced(10), 0.0)
    script.cold(end=10)
    assert script.kinds() == {Anomaly.LOST_WRITE}


def test_offsets_go_back_nowhere_also_where_records_are_given_up():
    script = gone_on(unclean=True)
    script.latest(10)
    script.latest(1)
    script.cold(end=10)
    assert Anomaly.WATERMARK_BACK in script.kinds()


def test_what_was_sent_again_after_it_was_given_up_is_no_double():
    script = gone_on(unclean=True)
    script.fetched(0, (0, 1), hw=1)
    again = script.send(1)
    script.lands(2, Append(P, 10, (1,)))
    script.ok(again, Produced(10), 0.0)
    script.cold((10, 1))
    assert Anomaly.DOUBLED not in script.kinds()


def test_a_batch_that_is_tried_again_behind_what_was_given_up_is_not_out_of_order():
    """Seed 30270: the one after it was acknowledged, and given up."""
    script = started()
    script.history.rules[P] = PartitionRules(unclean=True)
    unknown = script.send(1, p=(7, 0), seq=0)
    acked = script.send(2, p=(7, 0), seq=1)
    script.spooled(disk="d1", lane=1, claim=0, appends=(Append(P, 0, (1,)), Append(P, 1, (2,))))
    script.ok(acked, Produced(1), 0.0)
    gives_up(script)
    script.lands(2, Append(P, 10, (1,)))
    script.ok(unknown, Produced(10), 0.0)
    script.cold((10, 1))
    assert Anomaly.ORDER not in script.kinds()
