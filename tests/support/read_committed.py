"""What a client of committed records makes of an answer, by the rule of Kafka's consumers."""

from typing import NamedTuple

from holdfast.log.read_plan import batches_of
from holdfast.protocol.messages.fetch import PartitionData
from holdfast.records.batch import parse_header
from holdfast.records.control import decode_marker
from holdfast.records.record import Record, decode


class Seen(NamedTuple):
    """Records that count, and where the next fetch begins."""

    records: list[Record]
    next_offset: int


def read_committed(part: PartitionData, offset: int) -> Seen:
    """Aborted is what a producer wrote from the first offset named up to its abort marker."""
    coming = sorted((a.first_offset, a.producer_id) for a in part.aborted_transactions or [])
    aborted: set[int] = set()
    seen: list[Record] = []
    next_offset = offset
    for data in batches_of(part.records or []):
        header = parse_header(data)
        next_offset = max(next_offset, header.last_offset + 1)
        while coming and coming[0][0] <= header.last_offset:
            aborted.add(coming.pop(0)[1])
        if header.is_control:
            marker = decode_marker(data)
            if marker is not None and not marker.committed:
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            seen += [record for record in decode(bytes(data)) if record.offset >= offset]
    return Seen(seen, next_offset)
