"""Segments: any offset is found by the index, and every harm is recognised."""

import pytest
from tests.support.lanes import P0, P1
from tests.unit.log.stretches import built_segment, stored_batch

from holdfast.errors import CorruptObject, InvariantViolation
from holdfast.log.memory import SMALL_BUFFER_BYTES
from holdfast.log.segment import (
    INDEX_INTERVAL_BYTES,
    SegmentBuilder,
    SegmentIndex,
    parse_index,
)
from holdfast.records.batch import walk


def small(base: int = 5) -> list[bytes]:
    return [stored_batch(base, 2, timestamp=30), stored_batch(base + 2, 1, timestamp=20)]


def opened(data: bytes, batches: list[bytes]) -> SegmentIndex:
    ref = built_segment(P0, batches, attempt="c-x").ref
    return parse_index(P0, ref, data[: ref.data_start], key="k")


def test_a_segment_says_what_it_holds():
    batches = small()
    built = built_segment(P0, batches, attempt="c-x")
    ref = built.ref
    assert (ref.base_offset, ref.last_offset, ref.max_timestamp) == (5, 7, 30)
    assert ref.size_bytes == sum(map(len, batches))
    assert ref.name == f"{5:020d}-{7:020d}-c-x"
    assert b"".join(built.body)[ref.data_start :] == b"".join(batches)


def test_blocks_tile_the_segment_and_each_offset_is_in_the_block_that_is_found_for_it():
    size = INDEX_INTERVAL_BYTES // 3
    batches = [stored_batch(100 + 2 * i, 2, size=size // 2, timestamp=i) for i in range(12)]
    built = built_segment(P0, batches, attempt="c-x")
    data = b"".join(built.body)
    index = parse_index(P0, built.ref, data[: built.ref.data_start], key="k")
    assert len(index) > 3
    blocks = [index.block(i) for i in range(len(index))]
    found = b"".join(data[b.position : b.position + b.size_bytes] for b in blocks)
    assert found == b"".join(batches)
    for offset in range(100, 124):
        block = index.block(index.find(offset))
        assert block.base_offset <= offset <= block.last_offset
        stored = data[block.position : block.position + block.size_bytes]
        headers = [header for _, header in walk(stored)]
        assert headers[0].base_offset == block.base_offset
        assert headers[-1].last_offset == block.last_offset
    assert [b.max_timestamp for b in blocks] == sorted(b.max_timestamp for b in blocks)
    assert blocks[-1].max_timestamp == 11


def test_several_buffers_and_one_buffer_give_the_same_segment():
    batches = small()
    apart = built_segment(P0, batches, attempt="c-x")
    joined = built_segment(P0, [b"".join(batches)], attempt="c-x")
    assert b"".join(apart.body) == b"".join(joined.body)
    assert apart.ref == joined.ref


def test_each_flipped_byte_and_each_truncation_of_the_head_is_detected():
    batches = small()
    built = built_segment(P0, batches, attempt="c-x")
    data = b"".join(built.body)[: built.ref.data_start]
    assert len(opened(data, batches)) == 1
    for position in range(len(data)):
        harmed = bytearray(data)
        harmed[position] ^= 4
        with pytest.raises(CorruptObject):
            opened(bytes(harmed), batches)
        with pytest.raises(CorruptObject):
            opened(data[:position], batches)


def test_the_head_of_another_partition_or_stretch_is_refused():
    ours = built_segment(P0, small(), attempt="c-x")
    for other in (
        built_segment(P1, small(), attempt="c-x"),
        built_segment(P0, small(6), attempt="c-x"),
    ):
        head = b"".join(other.body)[: other.ref.data_start]
        with pytest.raises(CorruptObject, match="its lane says"):
            parse_index(P0, ours.ref, head, key="k")


@pytest.mark.parametrize("next_offset", [6, 8, 5])
def test_a_builder_refuses_a_batch_that_does_not_follow(next_offset: int):
    builder = SegmentBuilder(P0)
    builder.add([stored_batch(5, 2)])
    with pytest.raises(InvariantViolation, match="follows offset 6"):
        builder.add([stored_batch(next_offset)])


def test_small_buffers_are_joined_and_large_ones_kept_and_none_is_changed():
    small_ones = [bytearray(stored_batch(i)) for i in range(4)]
    large = bytearray(stored_batch(4, size=SMALL_BUFFER_BYTES))
    last = bytearray(stored_batch(5))
    given = [*small_ones, large, last]
    before = [bytes(buffer) for buffer in given]
    builder = SegmentBuilder(P0)
    builder.add(given)
    _, joined, kept, end = builder.finish("c-x").body
    assert kept is large
    assert bytes(joined) == b"".join(before[:4]) and bytes(end) == before[5]
    assert [bytes(buffer) for buffer in given] == before


@pytest.mark.parametrize("harm", ["cut short", "magic", "length", "rest"])
def test_a_builder_refuses_what_is_no_whole_batch(harm: str):
    data = bytearray(stored_batch(5, 2))
    match harm:
        case "cut short":
            del data[-1:]
        case "magic":
            data[16] = 1
        case "length":
            data[8:12] = (10).to_bytes(4, "big")
        case _:
            data += bytes(20)
    with pytest.raises(CorruptObject, match="not a record batch"):
        SegmentBuilder(P0).add([data])
