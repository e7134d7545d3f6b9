"""The one check of stored batches: what it refuses, and in which words."""

import pytest

from holdfast.errors import CorruptObject
from holdfast.log.partition import EpochStart, epochs_within
from holdfast.log.stored_batches import Stretch, check_batches
from holdfast.records.record import Record, encode_batch, encode_empty_batch

EPOCHS = [EpochStart(1, 0), EpochStart(4, 3)]
LEADER_EPOCH_END = 15
"""The last byte of a batch's leader epoch, which its CRC does not cover."""


def batch(base_offset: int, count: int, leader_epoch: int) -> bytes:
    records = [Record(base_offset + i, 7, None, b"value") for i in range(count)]
    return encode_batch(records, base_offset=base_offset, leader_epoch=leader_epoch)


WHOLE = batch(0, 3, 1) + batch(3, 2, 4)


def checked(data: bytes, *, base_offset: int = 0, last_offset: int = 4) -> None:
    stretch = Stretch("object", 100, len(WHOLE), base_offset, last_offset, 7)
    check_batches(data, stretch, EPOCHS)


def test_whole_batches_of_the_stretch_pass():
    checked(WHOLE)
    check_batches(WHOLE, Stretch("object", 0, len(WHOLE), 0, 4, 7), [])


def test_a_batch_without_records_that_stands_for_offsets_passes():
    empty = encode_empty_batch(3, 9, leader_epoch=4)
    check_batches(empty, Stretch("object", 0, len(empty), 3, 9, 7), EPOCHS)


def test_what_is_damaged_or_not_of_the_log_is_refused_by_name():
    second = len(batch(0, 3, 1))
    harmed = bytearray(WHOLE)
    harmed[-1] ^= 1
    other_epoch = bytearray(WHOLE)
    other_epoch[second + LEADER_EPOCH_END] ^= 1
    backwards = encode_empty_batch(0, -1, leader_epoch=1)
    for data, problem in (
        (WHOLE[:-1], "the store returned"),
        (bytes(harmed), "at offset 3: the CRC of the record batch at offset 3 is wrong"),
        (bytes(other_epoch), "its leader epoch is 5; 4 is expected"),
    ):
        with pytest.raises(CorruptObject, match=f"object at byte 100.*{problem}"):
            checked(data)
    with pytest.raises(CorruptObject, match="its base offset is 0; 1 is expected"):
        checked(WHOLE, base_offset=1)
    with pytest.raises(CorruptObject, match="its last offset is 4; 5 is expected"):
        checked(WHOLE, last_offset=5)
    with pytest.raises(CorruptObject, match="its last offset is -1, before its base offset"):
        check_batches(backwards, Stretch("object", 0, len(backwards), 0, -1, 7), EPOCHS)


@pytest.mark.parametrize(
    ("first", "last", "wanted"),
    [(0, 2, EPOCHS[:1]), (2, 3, EPOCHS), (3, 9, EPOCHS[1:]), (-2, -1, []), (-2, 0, EPOCHS[:1])],
)
def test_the_epochs_of_some_offsets_are_those_that_began_up_to_their_end(
    first: int, last: int, wanted: list[EpochStart]
):
    assert epochs_within(EPOCHS, first, last) == tuple(wanted)
