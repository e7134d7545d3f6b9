"""The oracle of a dedup with counts, on outputs that are right and on each way to be wrong."""

import json

from tests.chaos.streams_oracle import (
    Seen,
    check_counts,
    check_dedup,
    check_followed,
    check_input,
)


def record(partition: int, offset: int, name: str, copy: int) -> Seen:
    return Seen(partition, offset, "", json.dumps({"id": name, "copy": copy}))


def row(offset: int, name: str, copy: int) -> Seen:
    return Seen(0, offset, name, json.dumps({"id": name, "copy": copy}))


LOG = [record(0, 0, "a-10", 0), record(1, 0, "b-20", 0), record(1, 1, "a-10", 1)]
OUTPUT = [row(0, "b-20", 0), row(2, "a-10", 1)]
COUNTS = [Seen(0, 0, "10", "1"), Seen(0, 2, "20", "1"), Seen(0, 3, "10", "2")]


def test_each_id_once_as_any_of_its_copies_is_right():
    assert check_dedup(LOG, OUTPUT) == []


def test_a_missing_id_is_lost():
    assert check_dedup(LOG, OUTPUT[:1]) == ["lost: 1: ['a-10']"]


def test_a_second_copy_is_doubled():
    assert check_dedup(LOG, [*OUTPUT, row(3, "a-10", 0)]) == ["doubled: 1: ['a-10']"]


def test_a_copy_that_nobody_sent_is_a_phantom():
    (problem,) = check_dedup(LOG, [OUTPUT[0], row(2, "a-10", 2)])
    assert problem.startswith("phantom: 1:")


def test_a_row_under_another_key_is_a_phantom_and_its_id_is_lost():
    stray = OUTPUT[1]._replace(key="c-30")
    found = check_dedup(LOG, [OUTPUT[0], stray])
    assert [problem.partition(":")[0] for problem in found] == ["lost", "phantom"]


def test_counts_that_go_up_one_by_one_to_the_end_are_right():
    assert check_counts(LOG, COUNTS) == []


def test_a_count_that_ends_early_comes_twice_goes_on_too_far_or_is_of_nothing_is_wrong():
    for counts in (
        COUNTS[:2],
        [*COUNTS, COUNTS[2]],
        [*COUNTS, Seen(0, 4, "10", "3")],
        [COUNTS[2], COUNTS[0], COUNTS[1]],
        [*COUNTS, Seen(0, 4, "30", "1")],
    ):
        (problem,) = check_counts(LOG, counts)
        assert problem.startswith("wrong count: 1:")


def test_the_input_is_what_its_producer_was_told():
    acked = {(0, 0): ("a-10", 0), (1, 0): ("b-20", 0), (1, 1): ("a-10", 1)}
    assert check_input(LOG, acked) == []
    assert len(check_input(LOG[:2], acked)) == 1
    assert len(check_input(LOG, {**acked, (1, 1): ("a-10", 2)})) == 1


def test_what_was_read_as_committed_must_still_be_there():
    assert check_followed(OUTPUT[:1], OUTPUT) == []
    assert len(check_followed(OUTPUT, OUTPUT[:1])) == 1
