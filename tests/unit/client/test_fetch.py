"""What of a fetched answer a consumer sees."""

import struct

import pytest
from tests.unit.client.batches import data

from holdfast.client.fetch import PartitionFetch, records_of, without_cut_batch
from holdfast.errors import CorruptObject
from holdfast.protocol.messages.fetch import AbortedTransaction
from holdfast.records.record import Record, encode_batch

COMMIT, ABORT = 1, 0


def marker(offset: int, producer_id: int, kind: int) -> bytes:
    record = Record(0, 1_000, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 3))
    return encode_batch(
        [record],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        transactional=True,
        control=True,
    )


def fetched(
    *batches: bytes, offset: int = 0, aborted: dict[int, int] | None = None
) -> PartitionFetch:
    rows = [
        AbortedTransaction(producer_id=producer_id, first_offset=first)
        for first, producer_id in (aborted or {}).items()
    ]
    return PartitionFetch(offset, memoryview(b"".join(batches)), 100, 100, 0, rows)


def values(answer: PartitionFetch, *, read_committed: bool) -> list[bytes | None]:
    return [record.value for record in records_of(answer, read_committed=read_committed)]


def test_records_before_the_offset_are_left_out():
    answer = fetched(data(0, b"a", b"b", b"c"), data(3, b"d"), offset=2)
    assert [record.offset for record in records_of(answer)] == [2, 3]
    assert answer.next_offset == 4


def test_an_empty_answer_goes_on_at_the_same_offset():
    assert fetched(offset=9).next_offset == 9
    assert list(records_of(fetched(offset=9))) == []


def test_aborted_records_are_seen_only_by_those_who_read_uncommitted():
    answer = fetched(
        data(0, b"plain"),
        data(1, b"aborted-1", producer_id=5),
        data(2, b"committed-6", producer_id=6),
        marker(3, 5, ABORT),
        data(4, b"committed-5", producer_id=5),
        marker(5, 6, COMMIT),
        marker(6, 5, COMMIT),
        data(7, b"aborted-2", producer_id=5),
        marker(8, 5, ABORT),
        aborted={7: 5, 1: 5},
    )
    committed = [b"plain", b"committed-6", b"committed-5"]
    assert values(answer, read_committed=True) == committed
    assert sorted(filter(None, values(answer, read_committed=False))) == sorted(
        [*committed, b"aborted-1", b"aborted-2"]
    )
    assert answer.next_offset == 9


def test_a_transaction_that_was_aborted_before_the_fetch_begins_is_known_by_its_first_offset():
    answer = fetched(
        data(10, b"aborted", producer_id=5), marker(11, 5, ABORT), offset=10, aborted={2: 5}
    )
    assert values(answer, read_committed=True) == []


def test_a_batch_cut_at_the_end_is_left_for_the_next_fetch():
    first, second = data(0, b"a"), data(1, b"b")
    for length in range(len(second)):
        whole = without_cut_batch(memoryview(first + second[:length]))
        assert bytes(whole) == first
    assert bytes(without_cut_batch(memoryview(first + second))) == first + second


def test_a_length_that_cannot_be_is_corrupt_and_not_a_cut():
    batch = bytearray(data(0, b"a"))
    struct.pack_into(">i", batch, 8, -5)
    answer = fetched(bytes(without_cut_batch(memoryview(batch))))
    with pytest.raises(CorruptObject):
        list(records_of(answer))
