"""Reads the records of a fetch response, by the rules of Kafka's consumers.

Pure. Owns the client's half of read_committed: a producer's records are skipped from the first
offset that the response names up to the producer's abort marker. Markers are never records.
"""

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.records.batch import walk
from holdfast.records.control import decode_marker
from holdfast.records.record import decode_batch

Aborted = tuple[int, int]
"""The first offset and the producer id of an aborted transaction."""


class Reading(NamedTuple):
    """Records as (offset, value), and the offset at which the next fetch begins."""

    records: tuple[tuple[int, int], ...]
    next_offset: int


def read_batches(data: bytes, offset: int, aborted: Sequence[Aborted] = ()) -> Reading:
    """Return the records from an offset on, without those of the aborted transactions."""
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
