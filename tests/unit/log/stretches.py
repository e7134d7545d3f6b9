"""Batches as a lane stores them, for the tests of the log."""

from collections.abc import Sequence

from tests.support.lanes import P0

from holdfast.identifiers import PartitionId
from holdfast.log.facts import Appended
from holdfast.log.partition import PartitionLog, PartitionRun
from holdfast.log.segment import BuiltSegment, SegmentBuilder
from holdfast.records.batch import parse_header
from holdfast.records.record import Record, encode_batch

PARTITION = P0


def stored_batch(
    base_offset: int,
    count: int = 1,
    *,
    size: int = 10,
    timestamp: int = 1_000,
    leader_epoch: int = 0,
) -> bytes:
    """A batch in the log; each value says its offset."""
    records = [
        Record(0, timestamp, None, b"%d" % (base_offset + i) + b"." * size) for i in range(count)
    ]
    return encode_batch(records, base_offset=base_offset, leader_epoch=leader_epoch)


def appended(data: bytes, **more: int) -> Appended:
    header = parse_header(data)
    return Appended(
        PARTITION,
        header.base_offset,
        header.last_offset,
        header.size_bytes,
        header.max_timestamp,
        header.crc,
        **more,
    )


def built_segment(
    partition: PartitionId, batches: Sequence[bytes], *, attempt: str
) -> BuiltSegment:
    """A segment of batches in offset order."""
    builder = SegmentBuilder(partition)
    builder.add(batches)
    return builder.finish(attempt)


def log_with_runs(runs: Sequence[Sequence[bytes]], first_number: int = 1) -> PartitionLog:
    """A durable log of lane objects, each with these batches."""
    log = PartitionLog(PARTITION)
    for i, batches in enumerate(runs):
        headers = [parse_header(data) for data in batches]
        for data in batches:
            log.append(appended(data), 0)
        log.add_run(
            PartitionRun(
                headers[0].base_offset,
                headers[-1].last_offset,
                first_number + i,
                0,
                sum(len(data) for data in batches),
                max(header.max_timestamp for header in headers),
            )
        )
    log.high_watermark = log.log_end_offset
    return log
