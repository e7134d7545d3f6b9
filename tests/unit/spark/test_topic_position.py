"""How far a sink is, against the micro-batch that comes: run it, skip it, or ask a person."""

import pytest

from holdfast.spark.topic.position import (
    Known,
    Note,
    Position,
    PositionRefused,
    WriteRecords,
    decide,
    from_text,
    to_text,
)


def at(batch_id: int, *, query: str = "q", offsets: str = "planned") -> Position:
    return Position(query_id=query, batch_id=batch_id, offsets=offsets)


def decided(known: Position | None, batch: Position, committed: int | None = None):
    return decide(known, batch, sink_id="orders", committed_batch=committed)


def refusal(known: Position | None, batch: Position, committed: int | None = None) -> str:
    found = decided(known, batch, committed)
    assert isinstance(found, PositionRefused)
    return found.message


def test_a_position_is_what_was_written_and_other_texts_are_none():
    assert from_text(to_text(at(7))) == at(7)
    for text in ("", "{}", "7", "null", to_text(at(7)).replace('"version": 1', '"version": 2')):
        assert from_text(text) is None


def test_a_first_micro_batch_and_each_next_one_run():
    assert decided(None, at(0)) == WriteRecords()
    assert decided(at(0), at(1)) == WriteRecords()


def test_the_last_micro_batch_again_is_known_also_where_its_plan_cannot_be_read():
    assert decided(at(4), at(4)) == Known()
    assert decided(at(4), at(4, offsets="")) == Known()
    assert decided(at(4, offsets=""), at(4)) == Known()


def test_the_same_number_with_another_plan_is_an_old_copy_of_the_checkpoint():
    assert "old copy" in refusal(at(4), at(4, offsets="another"))


@pytest.mark.parametrize("batch_id", [0, 3])
def test_an_earlier_micro_batch_is_refused(batch_id: int):
    assert "old copy" in refusal(at(4), at(batch_id))


def test_micro_batches_that_are_missing_in_between_are_named():
    assert "those between are missing" in refusal(at(4), at(6))


def test_another_query_is_refused_with_the_remedy():
    said = refusal(at(4), at(0, query="other"))
    assert "another sinkId" in said and "startingOffsets" in said


def test_without_a_position_a_person_says_what_is_in_the_topic():
    assert "committedBatch to 9 if they are, to 8 if not" in refusal(None, at(9))
    assert decided(None, at(9), 8) == WriteRecords()
    assert decided(None, at(9), 9) == Note()
    assert "committedBatch" in refusal(None, at(10), 8)


def test_what_a_person_said_once_means_nothing_where_the_position_is_known():
    assert decided(at(9), at(10), 10) == WriteRecords()
    assert isinstance(decided(at(9), at(8), 7), PositionRefused)
