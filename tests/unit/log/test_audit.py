"""The audit of a partition's log: holes, overlaps and wrong bytes, each said once."""

from uuid import UUID

import pytest
from tests.unit.log.stretches import built_segment

from holdfast.identifiers import PartitionId
from holdfast.inspect.lane_audit import (
    leader_epoch_at,
    payload_problems,
    segment_problems,
    tile_problems,
)
from holdfast.log.facts import Appended, SegmentRef
from holdfast.log.partition import EpochStart, PartitionLog, PartitionRun
from holdfast.records.batch import parse_header
from holdfast.records.record import Record, encode_batch

PARTITION = PartitionId(UUID(int=7), 3)
LEADER_EPOCH = 4


def batch(base_offset: int, count: int) -> bytes:
    records = [Record(0, 1_000, b"k", b"v") for _ in range(count)]
    return encode_batch(records, base_offset=base_offset, leader_epoch=LEADER_EPOCH)


def appended(data: bytes) -> Appended:
    header = parse_header(data)
    return Appended(PARTITION, header.base_offset, header.last_offset, len(data), 1_000, header.crc)


def segment(base: int, last: int) -> SegmentRef:
    return SegmentRef(base, last, 100, 0, f"{base}-{last}", 100)


def log_of(segments: list[SegmentRef], runs: list[tuple[int, int]], start: int, end: int):
    log = PartitionLog(PARTITION)
    log.segments = segments
    for number, (base, last) in enumerate(runs):
        log.runs.append(PartitionRun(base, last, number, 0, 100, 0))
    log.start_decided = log.log_start_offset = start
    log.log_end_offset = log.high_watermark = end
    return log


@pytest.mark.parametrize(
    ("segments", "runs", "start", "end"),
    [
        ([], [], 0, 0),
        ([], [], 9, 9),
        ([], [(0, 4), (5, 5)], 0, 6),
        ([segment(0, 4), segment(5, 9)], [(10, 12)], 0, 13),
        ([segment(0, 4)], [], 3, 5),
    ],
)
def test_stretches_that_tile_are_no_problem(
    segments: list[SegmentRef], runs: list[tuple[int, int]], start: int, end: int
):
    assert list(tile_problems(log_of(segments, runs, start, end))) == []


@pytest.mark.parametrize(
    ("segments", "runs", "start", "end", "said"),
    [
        ([], [], 3, 5, "offsets 3..4 are missing: no object holds them"),
        ([segment(2, 4)], [], 0, 5, "offsets 0..1 are missing: no object holds them"),
        ([segment(0, 4)], [(6, 8)], 0, 9, "offsets 5..5 are missing: no object holds them"),
        (
            [segment(0, 4)],
            [(4, 8)],
            0,
            9,
            "offsets 4..4 are stored twice: in segment 0-4 and in lane object 0",
        ),
        ([segment(0, 4)], [], 0, 9, "offsets 5..8 are missing: no object holds them"),
        ([segment(0, 9)], [], 0, 9, "segment 0-9 ends at offset 9, past the high watermark 9"),
    ],
)
def test_a_hole_or_an_overlap_is_said_once(
    segments: list[SegmentRef], runs: list[tuple[int, int]], start: int, end: int, said: str
):
    (problem,) = tile_problems(log_of(segments, runs, start, end))
    assert problem.endswith(said)


def test_a_log_start_past_the_high_watermark_is_a_problem():
    assert any("log start offset 9" in p for p in tile_problems(log_of([], [], 9, 5)))


def test_a_payload_as_its_facts_say_is_no_problem():
    batches = [batch(0, 2), batch(2, 1)]
    facts = [appended(data) for data in batches]
    assert list(payload_problems(facts, b"".join(batches), LEADER_EPOCH)) == []


def test_a_payload_with_bytes_that_no_fact_names_is_a_problem():
    data = batch(0, 2)
    (problem,) = payload_problems([appended(data)], data + b"more", LEADER_EPOCH)
    assert "its facts list" in problem


def test_a_batch_of_another_leader_epoch_is_a_problem_where_the_epoch_is_known():
    data = batch(0, 2)
    assert list(payload_problems([appended(data)], data, None)) == []
    (problem,) = payload_problems([appended(data)], data, LEADER_EPOCH + 1)
    assert "leader epoch is 4" in problem


def test_a_batch_at_another_offset_than_its_fact_is_a_problem():
    data = batch(5, 2)
    fact = Appended(PARTITION, 0, 1, len(data), 1_000, 0)
    problems = list(payload_problems([fact], data, LEADER_EPOCH))
    assert any("base offset is 5; 0 is expected" in problem for problem in problems)


def test_a_segment_is_held_to_the_fact_that_names_it():
    built = built_segment(PARTITION, [batch(0, 2), batch(2, 3)], attempt="a-b")
    data = b"".join(built.body)
    log = log_of([built.ref], [], 0, 5)
    log.epochs = [EpochStart(LEADER_EPOCH, 0)]
    assert list(segment_problems(log, built.ref, data, key="key")) == []
    other = SegmentRef(0, 5, built.ref.size_bytes, 1_000, built.ref.name, built.ref.data_start)
    problems = list(segment_problems(log, other, data, key="key"))
    assert any("its header says offsets" in problem for problem in problems)
    assert any("its last offset is 4; its lane says 5" in problem for problem in problems)


def test_the_leader_epoch_of_an_offset_is_that_of_the_last_start_before_it():
    epochs = [EpochStart(1, 10), EpochStart(4, 20)]
    assert [leader_epoch_at(epochs, offset) for offset in (9, 10, 19, 20)] == [None, 1, 1, 4]
