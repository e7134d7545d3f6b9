"""Cutting batches into objects: bounds kept, order checked, landed records dropped."""

import pytest
from tests.support.landing import batch_of

from holdfast.errors import CallError
from holdfast.landing.packing import ObjectBounds, PackedObject, Packer


def packer(position: int = 0, end: int = 100, **bounds: int) -> Packer:
    return Packer(position=position, end_offset=end, bounds=ObjectBounds(**bounds))


def offsets(cut: PackedObject) -> list[int]:
    return [offset for batch in cut.batches for offset in batch.column("offset").to_pylist()]


def test_a_batch_is_cut_where_an_object_is_full():
    it = packer(rows_max=4)
    it.add(batch_of(range(10)))
    cut = it.full()
    assert cut is not None
    assert (offsets(cut), cut.first_offset, cut.last_offset) == ([0, 1, 2, 3], 0, 3)


def test_what_fits_into_one_object_waits_for_the_end_of_the_range():
    it = packer(rows_max=4, end=9)
    it.add(batch_of(range(4)))
    assert it.full() is None
    assert it.rest().last_offset == 8


def test_bytes_bound_an_object_too():
    it = packer(bytes_max=batch_of(range(5)).nbytes)
    it.add(batch_of(range(50)))
    cut = it.full()
    assert cut is not None
    assert 1 <= cut.rows <= 6


def test_one_record_larger_than_the_bound_still_lands_alone():
    it = packer(bytes_max=1)
    it.add(batch_of([0, 1]))
    cut = it.full()
    assert cut is not None
    assert offsets(cut) == [0]


def test_what_another_has_landed_is_cut_off_in_the_middle_of_a_batch():
    it = packer(end=12)
    it.add(batch_of(range(10)))
    it.move_to(7)
    assert (offsets(it.rest()), it.rest().first_offset) == ([7, 8, 9], 7)


def test_offsets_that_do_not_go_up_are_refused():
    it = packer()
    it.add(batch_of([1, 2]))
    with pytest.raises(CallError, match="must increase"):
        it.add(batch_of([2, 3]))
    with pytest.raises(CallError, match="must increase"):
        packer().add(batch_of([5, 4]))


def test_a_record_past_the_end_of_the_range_is_refused():
    with pytest.raises(CallError, match="not below the end"):
        packer(end=5).add(batch_of([4, 5]))
