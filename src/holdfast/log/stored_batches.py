"""Whole record batches in an object of the store: where they are, and the check of what was read.

Pure. Owns the one check of stored batches: the broker, Spark's executors and the audit of a store
all make it. The CRC of a batch does not cover its offset and leader epoch, so both are compared
with the log. Must never look at the records inside.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fastcrc.crc32 import iscsi

from holdfast.errors import CorruptObject
from holdfast.log.facts import SegmentRef
from holdfast.log.partition import EpochStart, leader_epoch_at
from holdfast.log.segment import Block
from holdfast.records.batch import CRC_START, BatchHeader, walk
from holdfast.records.compression import Buffer


class Stretch(NamedTuple):
    """Whole record batches, one after the other in an object."""

    key: str
    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    """The newest timestamp, as the batches' headers say it."""
    is_in_payload: bool = False
    """True if the position counts from where a lane object's payload begins; its header says."""


def stretch_of_block(key: str, block: Block) -> Stretch:
    """Return the stretch that a segment's block is, in the object of that key."""
    return Stretch(
        key,
        block.position,
        block.size_bytes,
        block.base_offset,
        block.last_offset,
        block.max_timestamp,
    )


def stretch_of_segment(key: str, segment: SegmentRef) -> Stretch:
    """Return all batches of a segment as one stretch of the object of that key."""
    return Stretch(
        key,
        segment.data_start,
        segment.size_bytes,
        segment.base_offset,
        segment.last_offset,
        segment.max_timestamp,
    )


def check_batches(data: Buffer, stretch: Stretch, epochs: Sequence[EpochStart]) -> None:
    """Raise CorruptObject unless the bytes are the whole, undamaged batches of the stretch."""
    where = f"{stretch.key} at byte {stretch.position}"
    if len(data) != stretch.size_bytes:
        raise CorruptObject(
            f"{where}: the store returned {len(data)} of {stretch.size_bytes} bytes"
        )
    view = memoryview(data)
    expected = stretch.base_offset
    for position, header in walk(view):
        batch = view[position : position + header.size_bytes]
        leader_epoch = leader_epoch_at(epochs, header.base_offset)
        for problem in batch_problems(batch, header, expected, leader_epoch):
            raise CorruptObject(
                f"{where}: the record batch {position} bytes further, at offset"
                f" {header.base_offset}: {problem}"
            )
        expected = header.last_offset + 1
    if expected != stretch.last_offset + 1:
        raise CorruptObject(
            f"{where}: its last offset is {expected - 1}; {stretch.last_offset} is expected"
        )


def batch_problems(
    batch: memoryview, header: BatchHeader, base_offset: int, leader_epoch: int | None
) -> Iterator[str]:
    """Yield where one whole batch is damaged or contradicts the log; its epoch may be unknown."""
    if header.base_offset != base_offset:
        yield f"its base offset is {header.base_offset}; {base_offset} is expected"
    if header.last_offset_delta < 0:
        yield f"its last offset is {header.last_offset}, before its base offset"
    if iscsi(batch[CRC_START : header.size_bytes]) != header.crc:
        yield f"the CRC of the record batch at offset {header.base_offset} is wrong"
    if leader_epoch is not None and header.leader_epoch != leader_epoch:
        yield f"its leader epoch is {header.leader_epoch}; {leader_epoch} is expected"
