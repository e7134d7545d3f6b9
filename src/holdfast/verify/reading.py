"""What a client makes of the bytes of a fetch answer, by the rule of Kafka's consumers.

Pure. Owns the client's half of committed reads: a producer's records from the first offset that
the answer names up to its abort marker are passed over. Markers are never records.
"""

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.records.batch import walk
from holdfast.records.control import decode_marker
from holdfast.records.record import decode_batch

Aborted = tuple[int, int]
"""First offset and producer id of an aborted transaction."""


class Reading(NamedTuple):
    """Records by offset, and where the next fetch begins."""

    records: tuple[tuple[int, int], ...]
    next_offset: int


def read_batches(data: bytes, offset: int, aborted: Sequence[Aborted] = ()) -> Reading:
    """All records from an offset on; without those of the transactions that are named."""
    coming = sorted(aborted)
    passed_over: set[int] = set()
    records: list[tuple[int, int]] = []
    next_offset = offset
    for start, header in walk(data):
        batch = data[start : start + header.size_bytes]
        next_offset = max(next_offset, header.last_offset + 1)
        while coming and coming[0][0] <= header.last_offset:
            passed_over.add(coming.pop(0)[1])
        if header.is_control:
            marker = decode_marker(batch)
            if marker is not None and not marker.committed:
                passed_over.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in passed_over):
            records += [
                (record.offset, int(record.value or b"-1"))
                for record in decode_batch(batch)
                if record.offset >= offset
            ]
    return Reading(tuple(records), next_offset)
