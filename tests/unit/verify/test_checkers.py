"""Each checker on hand-written histories: the anomaly is named, its harmless twin is not."""

import pytest
from tests.unit.verify.scripts import P, Script

from holdfast.verify.checkers import CHECKERS, Anomaly, void_reason
from holdfast.verify.history import (
    Append,
    CreateTopic,
    DeleteTopic,
    Done,
    Fetch,
    Fetched,
    LandedKind,
    Listed,
    ListOffsets,
    MarkerKind,
    PartitionRules,
    Produced,
    Which,
)


def test_a_plain_run_is_clean():
    script = Script()
    script.lands(0, kind=LandedKind.CLAIM)
    first = script.send(1, 2)
    script.lands(1, Append(P, 0, (1, 2)))
    script.ok(first, Produced(0), 0.0)
    script.fetched(0, (0, 1), (1, 2), hw=2)
    script.latest(2)
    script.cold((0, 1), (1, 2))
    assert script.kinds() == set()


def test_an_acked_record_missing_from_the_cold_read_is_lost():
    script = Script()
    script.acked(0, 1, 2)
    script.cold((0, 1), end=2)
    assert script.kinds() == {Anomaly.LOST_WRITE}


def test_an_acked_partition_that_the_cold_read_does_not_know_is_lost():
    script = Script()
    script.acked(0, 1)
    assert script.kinds() == {Anomaly.LOST_WRITE}


def test_a_record_below_a_log_start_that_was_asked_for_is_not_lost():
    script = Script()
    script.acked(0, 1, 2)
    script.delete_records(1, 1)
    script.cold((1, 2), log_start=1)
    assert script.kinds() == set()


def test_records_of_a_deleted_topic_are_not_lost():
    script = Script()
    script.ok(script.invoke("a", "b1", CreateTopic("orders", 1), 0.0), Done(), 0.0)
    script.acked(0, 1)
    script.info(script.invoke("a", "b1", DeleteTopic("orders"), 0.0), "REQUEST_TIMED_OUT", 0.0)
    assert script.kinds() == set()


def test_two_readers_that_see_different_values_at_one_offset():
    script = Script()
    script.send(1)
    script.send(2)
    script.fetched(0, (0, 1), hw=1)
    script.fetched(0, (0, 2), hw=1, broker="b2")
    script.cold((0, 2))
    assert script.kinds() == {Anomaly.TWO_VALUES}


def test_a_value_that_nobody_sent_is_a_phantom():
    script = Script()
    script.fetched(0, (0, 9), hw=1)
    script.send(9)
    script.cold((0, 9))
    assert script.kinds() == {Anomaly.PHANTOM}


def test_an_idempotent_batch_that_landed_twice_is_doubled():
    script = Script()
    script.info(script.send(1, p=(7, 0), seq=0), "REQUEST_TIMED_OUT", 0.0)
    script.acked(1, 1, p=(7, 0), seq=0)
    script.cold((0, 1), (1, 1))
    assert script.kinds() == {Anomaly.DOUBLED}


def test_a_value_resent_under_a_new_epoch_may_be_there_twice():
    script = Script()
    script.info(script.send(1, p=(7, 0), seq=0), "REQUEST_TIMED_OUT", 0.0)
    script.acked(1, 1, p=(7, 1), seq=0)
    script.cold((0, 1), (1, 1))
    assert script.kinds() == set()


def test_a_plain_producer_that_retried_may_be_there_twice_but_not_thrice():
    script = Script()
    script.info(script.send(1), "REQUEST_TIMED_OUT", 0.0)
    script.acked(1, 1)
    script.cold((0, 1), (1, 1))
    assert script.kinds() == set()
    script.cold((0, 1), (1, 1), (2, 1))
    assert script.kinds() == {Anomaly.DOUBLED}


def test_a_retry_acked_at_another_offset():
    script = Script()
    script.acked(0, 1, p=(7, 0), seq=0)
    script.acked(5, 1, p=(7, 0), seq=0)
    script.cold((0, 1), (5, 1))
    assert Anomaly.ACK_MOVED in script.kinds()


def test_a_refused_record_that_appears():
    script = Script()
    script.fail(script.send(1), "INVALID_RECORD", 0.0)
    script.cold((0, 1))
    assert script.kinds() == {Anomaly.DEFINITE_ERROR_APPEARS}


def test_an_unknown_outcome_may_appear_or_not():
    script = Script()
    script.info(script.send(1), "REQUEST_TIMED_OUT", 0.0)
    script.send(2)
    script.cold((0, 1))
    assert script.kinds() == set()


def test_a_latest_offset_below_one_already_served_by_another_broker():
    script = Script()
    script.send(1, 2)
    script.latest(2, broker="b1")
    script.latest(1, broker="b2")
    script.cold((0, 1), (1, 2))
    assert script.kinds() == {Anomaly.WATERMARK_BACK}


def test_overlapping_answers_may_come_in_either_order():
    script = Script()
    script.send(1, 2)
    early = script.invoke("w", "b2", ListOffsets(P, Which.LATEST), 0.0)
    script.latest(2)
    script.ok(early, Listed(1), 0.0)
    script.cold((0, 1), (1, 2))
    assert script.kinds() == set()


def test_a_cold_end_below_a_served_watermark():
    script = Script()
    script.send(1, 2)
    script.latest(2)
    script.cold((0, 1))
    assert script.kinds() == {Anomaly.WATERMARK_BACK}


def test_a_log_start_that_goes_back():
    script = Script()
    script.acked(0, 1, 2)
    script.delete_records(1, 1)
    script.earliest(0)
    script.cold((1, 2), log_start=1)
    assert script.kinds() == {Anomaly.LOG_START_BACK}


def test_a_log_start_that_nobody_asked_for_unless_retention_is_on():
    script = Script()
    script.acked(0, 1, 2)
    script.earliest(1)
    script.cold((1, 2), log_start=1)
    assert script.kinds() == {Anomaly.LOG_START_UNASKED}
    script.history.rules[P] = PartitionRules(retention=True)
    assert script.kinds() == set()


def test_a_fetch_that_does_not_know_an_acked_record():
    script = Script()
    script.acked(0, 1)
    script.fetched(0, hw=0, broker="b2")
    script.cold((0, 1))
    assert script.kinds() == {Anomaly.HIDDEN}


def test_out_of_range_for_an_acked_record():
    script = Script()
    script.acked(0, 1)
    script.fail(script.invoke("c", "b2", Fetch(P, 0), 0.0), "OFFSET_OUT_OF_RANGE", 0.0)
    script.cold((0, 1))
    assert script.kinds() == {Anomaly.HIDDEN}


def test_out_of_range_below_the_log_start_or_past_the_end_is_right():
    script = Script()
    script.acked(0, 1, 2)
    script.delete_records(1, 1)
    script.fail(script.invoke("c", "b2", Fetch(P, 0), 0.0), "OFFSET_OUT_OF_RANGE", 0.0)
    script.fail(script.invoke("c", "b2", Fetch(P, 3), 0.0), "OFFSET_OUT_OF_RANGE", 0.0)
    script.cold((1, 2), log_start=1)
    assert script.kinds() == set()


def test_a_fetch_begun_before_the_ack_may_miss_the_record():
    script = Script()
    early = script.invoke("c", "b1", Fetch(P, 0), 0.0)
    script.acked(0, 1)
    script.ok(early, Fetched((), 0, 0), 0.0)
    script.cold((0, 1))
    assert script.kinds() == set()


def test_an_empty_answer_below_its_own_watermark():
    script = Script()
    script.acked(0, 1)
    script.fetched(0, hw=1)
    script.cold((0, 1))
    assert script.kinds() == {Anomaly.HIDDEN}


def test_a_record_passed_over_inside_and_before_a_fetch():
    script = Script()
    script.acked(0, 1, 2, 3)
    script.cold((0, 1), (1, 2), (2, 3))
    script.fetched(0, (0, 1), (2, 3), hw=3)
    assert script.kinds() == {Anomaly.GAP}
    script = Script()
    script.acked(0, 1, 2, 3)
    script.cold((0, 1), (1, 2), (2, 3))
    script.fetched(0, (1, 2), (2, 3), hw=3)
    assert script.kinds() == {Anomaly.GAP}


def test_a_jump_to_the_log_start_is_no_gap():
    script = Script()
    script.acked(0, 1, 2, 3)
    script.delete_records(2, 2)
    script.fetched(0, (2, 3), hw=3, log_start=2)
    script.cold((2, 3), log_start=2)
    assert script.kinds() == set()


def test_a_record_above_the_watermark_of_its_own_answer():
    script = Script()
    script.send(1)
    script.fetched(0, (0, 1), hw=0)
    script.cold((0, 1))
    assert script.kinds() == {Anomaly.ABOVE_WATERMARK}


def test_a_producer_whose_sequences_and_offsets_disagree():
    script = Script()
    one = script.send(1, p=(7, 0), seq=0)
    two = script.send(2, p=(7, 0), seq=1)
    script.ok(two, Produced(0), 0.0)
    script.ok(one, Produced(1), 0.0)
    script.cold((0, 2), (1, 1))
    assert script.kinds() == {Anomaly.ORDER}


def test_a_batch_that_was_torn():
    script = Script()
    script.send(1, 2)
    script.send(3)
    script.cold((0, 1), (1, 3), (2, 2))
    assert script.kinds() == {Anomaly.ORDER}


def test_a_later_batch_below_an_earlier_ack():
    script = Script()
    script.acked(1, 2)
    script.send(1)
    script.cold((0, 1), (1, 2))
    assert script.kinds() == {Anomaly.ORDER}


def test_a_sequence_error_although_all_before_was_acked():
    script = Script()
    script.acked(0, 1, p=(7, 0), seq=0)
    late = script.send(2, p=(7, 0), seq=1)
    script.fail(late, "OUT_OF_ORDER_SEQUENCE_NUMBER", 0.0)
    script.cold((0, 1))
    assert script.kinds() == {Anomaly.SEQUENCE_REFUSED}


@pytest.mark.parametrize("is_acked_later", [True, False])
def test_a_sequence_error_while_the_batch_before_is_under_way(is_acked_later: bool):
    script = Script()
    first = script.send(1, p=(7, 0), seq=0)
    second = script.send(2, p=(7, 0), seq=1)
    script.fail(second, "OUT_OF_ORDER_SEQUENCE_NUMBER", 0.0)
    if is_acked_later:
        script.info(first, "NOT_LEADER_OR_FOLLOWER", 0.0)
        script.acked(0, 1, p=(7, 0), seq=0)
        script.cold((0, 1))
    assert script.kinds() == ({Anomaly.GAP_CALLED} if is_acked_later else set())


def test_a_sequence_error_after_an_unknown_batch_is_right():
    script = Script()
    script.info(script.send(1, p=(7, 0), seq=0), "REQUEST_TIMED_OUT", 0.0)
    script.fail(script.send(2, p=(7, 0), seq=1), "OUT_OF_ORDER_SEQUENCE_NUMBER", 0.0)
    assert script.kinds() == set()


def test_an_ack_before_its_object_landed():
    script = Script()
    script.lands(0, kind=LandedKind.CLAIM)
    script.acked(0, 1)
    script.lands(1, Append(P, 0, (1,)))
    script.cold((0, 1))
    assert script.kinds() == {Anomaly.ACK_NOT_DURABLE}


def test_an_ack_for_an_offset_that_another_claim_took():
    script = Script()
    script.lands(0, kind=LandedKind.CLAIM)
    script.lands(1, kind=LandedKind.CLAIM, claim=1, writer="w2")
    script.send(2)
    script.lands(2, Append(P, 0, (2,)), claim=1, writer="w2")
    script.acked(0, 1)
    script.cold((0, 2))
    assert script.kinds() == {Anomaly.FENCED_ACK, Anomaly.LOST_WRITE, Anomaly.TWO_VALUES}


def test_an_ack_on_an_object_that_won_a_deleted_number_again():
    script = Script()
    script.lands(0, kind=LandedKind.CLAIM)
    script.lands(1)
    script.lands(2)
    script.acked(0, 1)
    script.lands(1, Append(P, 0, (1,)), digest="again")
    assert Anomaly.ACK_NOT_DURABLE in script.kinds()


def test_a_record_or_a_watermark_served_before_it_was_durable():
    script = Script()
    script.lands(0, kind=LandedKind.CLAIM)
    script.send(1)
    script.fetched(0, (0, 1), hw=1)
    script.lands(1, Append(P, 0, (1,)))
    script.cold((0, 1))
    assert script.kinds() == {Anomaly.READ_NOT_DURABLE}


def test_a_skipped_number_is_a_hole():
    script = Script()
    script.lands(0, kind=LandedKind.CLAIM)
    script.lands(2, previous="h1")
    assert script.kinds() == {Anomaly.LANE_HOLE}
    script.lands(1)
    assert script.kinds() == {Anomaly.LANE_HOLE}


def test_a_broken_chain():
    script = Script()
    script.lands(0, kind=LandedKind.CLAIM)
    script.lands(1, previous="elsewhere")
    assert script.kinds() == {Anomaly.CHAIN_BROKEN}


def test_a_writer_that_goes_on_after_a_newer_claim_or_its_own_release():
    script = Script()
    script.lands(0, kind=LandedKind.CLAIM)
    script.lands(1, kind=LandedKind.CLAIM, claim=1, writer="w2")
    script.lands(2, claim=0, writer="w1")
    assert script.kinds() == {Anomaly.CLAIM_BACK}
    script = Script()
    script.lands(0, kind=LandedKind.CLAIM)
    script.lands(1, kind=LandedKind.RELEASE)
    script.lands(2)
    assert script.kinds() == {Anomaly.CLAIM_BACK}


def test_a_crash_is_a_violation():
    script = Script()
    script.history.crashes.append("InvariantViolation")
    assert script.kinds() == {Anomaly.CRASH}


def test_a_run_without_faults_hand_offs_or_success_is_void():
    script = Script()
    script.acked(0, 1)
    assert void_reason(script.history) == "no faults"
    script.mark(MarkerKind.KILL, "b1", 0.0)
    assert void_reason(script.history) == "no hand-offs"
    script.lands(0, kind=LandedKind.CLAIM)
    script.lands(1, kind=LandedKind.CLAIM, claim=1)
    assert void_reason(script.history) is None
    script.info(script.send(2), "REQUEST_TIMED_OUT", 0.0)
    script.info(script.send(3), "REQUEST_TIMED_OUT", 0.0)
    assert void_reason(script.history) == "only 33% of the calls were ok"


def test_the_digest_tells_histories_apart():
    one, two = Script(), Script()
    one.acked(0, 1)
    two.acked(0, 1)
    assert one.history.digest() == two.history.digest()
    two.cold((0, 1))
    assert one.history.digest() != two.history.digest()


def test_every_checker_has_a_docstring_that_names_its_anomaly():
    assert all(checker.__doc__ for checker in CHECKERS)
