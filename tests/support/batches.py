"""Record batches as producers send them."""

from collections.abc import Sequence

from holdfast.records.record import Record, encode_batch


def batch(
    values: Sequence[bytes] = (b"value",),
    *,
    timestamp: int = 1_000,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
) -> bytearray:
    """A batch as a producer sends it; `producer` is id, epoch and first sequence."""
    records = [Record(0, timestamp, None, value) for value in values]
    return bytearray(
        encode_batch(
            records,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=producer[2],
            transactional=transactional,
        )
    )
