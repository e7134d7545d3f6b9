"""The audit of a stored lane: whether payloads, segments and offsets agree with its facts.

Pure. Reports all problems, never only the first: a person who inspects a store wants to know how
much is damaged. Must never repair anything, nor skip a check of one part because another is right.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from fastcrc import crc32

from holdfast.errors import CorruptObject
from holdfast.identifiers import PartitionId
from holdfast.log.facts import Appended, SegmentRef
from holdfast.log.partition import PartitionLog, leader_epoch_at
from holdfast.log.segment import parse_index
from holdfast.log.stored_batches import batch_problems
from holdfast.records.batch import CRC_START, BatchHeader, walk
from holdfast.records.control import decode_marker
from holdfast.records.record import decode_batch

Buffer = bytes | bytearray | memoryview


def payload_problems(
    facts: Sequence[Any], payload: Buffer, leader_epoch: int | None
) -> Iterator[str]:
    """Yield where a lane object's payload contradicts its facts; `leader_epoch` may be unknown."""
    grouped: dict[PartitionId, list[Appended]] = {}
    for fact in facts:
        if isinstance(fact, Appended):
            grouped.setdefault(fact.partition, []).append(fact)
    view = memoryview(payload)
    position = 0
    for partition, appended in grouped.items():
        for fact in appended:
            batch = view[position : position + fact.size_bytes]
            position += fact.size_bytes
            where = f"{shown(partition)} at offset {fact.base_offset}"
            epoch = fact.leader_epoch if fact.leader_epoch >= 0 else leader_epoch
            for problem in _first_batch_problems(batch, fact.base_offset, epoch):
                yield f"{where}: {problem}"
            try:
                headers = [header for _, header in walk(batch)]
            except CorruptObject:
                continue
            if len(headers) != 1 or headers[0].last_offset != fact.last_offset:
                yield f"{where}: it is not one record batch that ends at offset {fact.last_offset}"
            elif problem := _transaction_problem(fact, headers[0], batch):
                yield f"{where}: {problem}"
    if position != len(payload):
        yield f"it has {len(payload)} bytes of record batches; its facts list {position} bytes"


def _transaction_problem(fact: Appended, header: BatchHeader, batch: memoryview) -> str | None:
    if header.is_transactional != fact.is_transactional:
        said = "transactional" if header.is_transactional else "not transactional"
        return f"the record batch is {said}, but its lane object says the opposite"
    if header.is_control != (fact.ends is not None):
        said = "a control batch" if header.is_control else "not a control batch"
        return f"the record batch is {said}, but its lane object says the opposite"
    if fact.ends is None:
        return None
    try:
        marker = decode_marker(batch)
    except CorruptObject as error:
        return str(error)
    said = (fact.producer_id, fact.producer_epoch, fact.ends.committed, fact.ends.coordinator_epoch)
    if marker is None or marker[:4] != said:
        return (
            f"the transaction marker is {marker}; its lane object says {fact.ends} of producer"
            f" {fact.producer_id}"
        )
    return None


def transaction_problems(log: PartitionLog) -> Iterator[str]:
    """Yield open and aborted transactions that are not in the log, or out of order."""
    name = shown(log.partition)
    if not log.log_start_offset <= log.last_stable_offset <= log.high_watermark:
        yield (
            f"{name}: last stable offset {log.last_stable_offset} is not between log start offset"
            f" {log.log_start_offset} and high watermark {log.high_watermark}"
        )
    for producer_id, found in log.transactions.open.items():
        if producer_id not in log.producers:
            yield (
                f"{name}: producer {producer_id} has an open transaction, but is not among the"
                " producers of this partition"
            )
        if found.first_offset >= log.log_end_offset:
            yield (
                f"{name}: the open transaction of producer {producer_id} begins at offset"
                f" {found.first_offset}, past the log end offset {log.log_end_offset}"
            )
    before = -1
    for entry in log.transactions.aborted:
        in_log = before < entry.last_offset < log.log_end_offset
        if not (in_log and entry.first_offset < entry.last_offset):
            yield (
                f"{name}: the aborted transaction {entry.first_offset}..{entry.last_offset} of"
                f" producer {entry.producer_id} is out of place: the previous marker is at offset"
                f" {before}, and the log end offset is {log.log_end_offset}"
            )
        before = entry.last_offset


def segment_problems(
    log: PartitionLog, segment: SegmentRef, data: bytes, *, key: str
) -> Iterator[str]:
    """Yield where a whole segment contradicts its fact, its own index or the log's epochs."""
    size = segment.data_start + segment.size_bytes
    if len(data) != size:
        yield f"it has {len(data)} bytes; its lane says {size}"
    try:
        index = parse_index(log.partition, segment, data[: segment.data_start], key=key)
    except CorruptObject as error:
        yield str(error).removeprefix(f"{key}: ")
        index = None
    batches = memoryview(data)[segment.data_start : size]
    starts: dict[int, BatchHeader] = {}
    expected = segment.base_offset
    try:
        for position, header in walk(batches):
            starts[position] = header
            batch = batches[position : position + header.size_bytes]
            leader_epoch = leader_epoch_at(log.epochs, header.base_offset)
            for problem in batch_problems(batch, header, expected, leader_epoch):
                yield f"the record batch at byte {segment.data_start + position}: {problem}"
            expected += header.last_offset_delta + 1
    except CorruptObject as error:
        yield str(error)
        return
    if expected != segment.last_offset + 1:
        yield f"its last offset is {expected - 1}; its lane says {segment.last_offset}"
    for i in range(len(index) if index is not None else 0):
        assert index is not None
        header = starts.get(index.position[i])
        if header is None or header.base_offset != index.base[i]:
            yield (
                f"index block {i} points at byte {index.position[i]}, where the record batch at"
                f" offset {index.base[i]} does not begin"
            )


def unreadable_batches(batches: Buffer) -> Iterator[str]:
    """Yield batches with a correct CRC and unreadable records: their producer sent them so."""
    view = memoryview(batches)
    try:
        for position, header in walk(view):
            batch = view[position : position + header.size_bytes]
            if crc32.iscsi(batch[CRC_START:]) != header.crc:
                continue
            try:
                decode_batch(batch)
            except CorruptObject as error:
                yield (
                    f"the record batch at offsets {header.base_offset} to {header.last_offset}"
                    f" cannot be read: {error}"
                )
    except CorruptObject:
        return  # other checks report this damage


def unreadable_in_payload(facts: Sequence[Any], payload: Buffer) -> Iterator[str]:
    """Yield the unreadable batches in a lane object's payload, each with its partition."""
    grouped: dict[PartitionId, int] = {}
    for fact in facts:
        if isinstance(fact, Appended):
            grouped[fact.partition] = grouped.get(fact.partition, 0) + fact.size_bytes
    view = memoryview(payload)
    position = 0
    for partition, size_bytes in grouped.items():
        for problem in unreadable_batches(view[position : position + size_bytes]):
            yield f"{shown(partition)}: {problem}"
        position += size_bytes


def _first_batch_problems(
    batch: memoryview, base_offset: int, leader_epoch: int | None
) -> Iterator[str]:
    try:
        found = [header for _, header in walk(batch)]
    except CorruptObject as error:
        yield str(error)
        return
    if not found:
        yield "there is no record batch"
        return
    yield from batch_problems(batch, found[0], base_offset, leader_epoch)


def tile_problems(log: PartitionLog) -> Iterator[str]:
    """Yield gaps and overlaps: segments, then runs, must cover log start to high watermark once."""
    name = shown(log.partition)
    start, end = log.log_start_offset, log.high_watermark
    if not 0 <= start <= end or log.log_end_offset != end:
        yield (
            f"{name}: log start offset {start}, high watermark {end} and log end offset"
            f" {log.log_end_offset} contradict each other"
        )
    stretches = [(s.base_offset, s.last_offset, f"segment {s.name}") for s in log.segments]
    for i in range(len(log.runs)):
        run = log.runs.get(i)
        stretches.append((run.base_offset, run.last_offset, f"lane object {run.number}"))
    if not stretches:
        if start != end:
            yield _no_object(name, start, end - 1)
        return
    if stretches[0][0] > start:
        yield _no_object(name, start, stretches[0][0] - 1)
    for before, after in itertools.pairwise(stretches):
        if after[0] > before[1] + 1:
            yield _no_object(name, before[1] + 1, after[0] - 1)
        elif after[0] <= before[1]:
            yield (
                f"{name}: offsets {after[0]}..{before[1]} are stored twice: in {before[2]} and in"
                f" {after[2]}"
            )
    last = stretches[-1][1]
    if last + 1 < end:
        yield _no_object(name, last + 1, end - 1)
    elif last + 1 > end:
        yield f"{name}: {stretches[-1][2]} ends at offset {last}, past the high watermark {end}"


def _no_object(name: str, first: int, last: int) -> str:
    return f"{name}: offsets {first}..{last} are missing: no object holds them"


def shown(partition: PartitionId) -> str:
    return f"{partition.topic_id}/{partition.partition}"
