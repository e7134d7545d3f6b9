"""Batches as a Fetch answers them."""

from holdfast.records.record import Record, encode_batch


def data(offset: int, *values: bytes, producer_id: int = -1) -> bytes:
    return encode_batch(
        [Record(0, 1_000, None, value) for value in values],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=producer_id >= 0,
    )
