"""Whether what a lane stores is what its facts say: payloads, segments, and offsets without a hole.

Pure. Answers with the problems found, all of them, never with the first only: whoever inspects a
store wants to know how much is harmed. Must never repair, and never trust one part for another.
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
from holdfast.records.batch import CRC_START, BatchHeader, walk
from holdfast.records.control import decode_marker

Buffer = bytes | bytearray | memoryview


def payload_problems(
    facts: Sequence[Any], payload: Buffer, leader_epoch: int | None
) -> Iterator[str]:
    """A lane object's payload against its facts; `leader_epoch` is None where it is not known."""
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
            for problem in _batch_problems(batch, fact.base_offset, epoch):
                yield f"{where}: {problem}"
            try:
                headers = [header for _, header in walk(batch)]
            except CorruptObject:
                continue
            if len(headers) != 1 or headers[0].last_offset != fact.last_offset:
                yield f"{where}: not the one batch up to {fact.last_offset} that the fact says"
            elif problem := _transaction_problem(fact, headers[0], batch):
                yield f"{where}: {problem}"
    if position != len(payload):
        yield f"{len(payload)} payload bytes; the facts account for {position}"


def _transaction_problem(fact: Appended, header: BatchHeader, batch: memoryview) -> str | None:
    if header.is_transactional != fact.is_transactional:
        said = "transactional" if header.is_transactional else "not transactional"
        return f"the batch is {said}, and the fact says otherwise"
    if header.is_control != (fact.ends is not None):
        said = "a control batch" if header.is_control else "no control batch"
        return f"the batch is {said}, and the fact says otherwise"
    if fact.ends is None:
        return None
    try:
        marker = decode_marker(batch)
    except CorruptObject as error:
        return str(error)
    said = (fact.producer_id, fact.producer_epoch, fact.ends.committed, fact.ends.coordinator_epoch)
    if marker is None or marker[:4] != said:
        return f"the marker is {marker}; the fact says {fact.ends} of producer {fact.producer_id}"
    return None


def transaction_problems(log: PartitionLog) -> Iterator[str]:
    """Open and aborted transactions must be in the log, and in order."""
    name = shown(log.partition)
    if not log.log_start_offset <= log.last_stable_offset <= log.high_watermark:
        yield (
            f"{name}: last stable offset {log.last_stable_offset} is not between log start"
            f" {log.log_start_offset} and high watermark {log.high_watermark}"
        )
    for producer_id, found in log.transactions.open.items():
        if producer_id not in log.producers:
            yield f"{name}: producer {producer_id} has an open transaction, and is not known"
        if found.first_offset >= log.log_end_offset:
            yield (
                f"{name}: the transaction of producer {producer_id} begins at {found.first_offset},"
                f" past the log end {log.log_end_offset}"
            )
    before = -1
    for entry in log.transactions.aborted:
        in_log = before < entry.last_offset < log.log_end_offset
        if not (in_log and entry.first_offset < entry.last_offset):
            yield f"{name}: {entry} cannot follow a marker at {before} in a log of this length"
        before = entry.last_offset


def segment_problems(
    log: PartitionLog, segment: SegmentRef, data: bytes, *, key: str
) -> Iterator[str]:
    """A whole segment against the fact that names it, its own index, and the log's epochs."""
    size = segment.data_start + segment.size_bytes
    if len(data) != size:
        yield f"{len(data)} bytes; the log says {size}"
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
            for problem in _batch_problems(batch, expected, leader_epoch):
                yield f"the batch at byte {segment.data_start + position}: {problem}"
            expected += header.last_offset_delta + 1
    except CorruptObject as error:
        yield str(error)
        return
    if expected != segment.last_offset + 1:
        yield f"its batches end before offset {expected}; the log says {segment.last_offset + 1}"
    for i in range(len(index) if index is not None else 0):
        assert index is not None
        header = starts.get(index.position[i])
        if header is None or header.base_offset != index.base[i]:
            yield f"block {i} of the index points at byte {index.position[i]}: no such batch"


def _batch_problems(batch: memoryview, base_offset: int, leader_epoch: int | None) -> Iterator[str]:
    try:
        found = [header for _, header in walk(batch)]
    except CorruptObject as error:
        yield str(error)
        return
    if not found:
        yield "there is no batch"
        return
    header = found[0]
    if header.base_offset != base_offset:
        yield f"it says offset {header.base_offset} where {base_offset} is next"
    if crc32.iscsi(batch[CRC_START : header.size_bytes]) != header.crc:
        yield f"the CRC of the record batch at offset {header.base_offset} is wrong"
    if leader_epoch is not None and header.leader_epoch != leader_epoch:
        yield f"it says leader epoch {header.leader_epoch}; it was appended under {leader_epoch}"


def tile_problems(log: PartitionLog) -> Iterator[str]:
    """Segments, then runs in lane objects, must cover log start to high watermark, once."""
    name = shown(log.partition)
    start, end = log.log_start_offset, log.high_watermark
    if not 0 <= start <= end or log.log_end_offset != end:
        yield f"{name}: log start {start}, high watermark {end}, log end {log.log_end_offset}"
    stretches = [(s.base_offset, s.last_offset, f"segment {s.name}") for s in log.segments]
    for i in range(len(log.runs)):
        run = log.runs.get(i)
        stretches.append((run.base_offset, run.last_offset, f"lane object {run.number}"))
    if not stretches:
        if start != end:
            yield f"{name}: offsets {start}..{end - 1} are in no object"
        return
    if stretches[0][0] > start:
        yield f"{name}: offsets {start}..{stretches[0][0] - 1} are in no object"
    for before, after in itertools.pairwise(stretches):
        if after[0] > before[1] + 1:
            yield f"{name}: offsets {before[1] + 1}..{after[0] - 1} are in no object"
        elif after[0] <= before[1]:
            yield f"{name}: offsets {after[0]}..{before[1]} are in {before[2]} and in {after[2]}"
    last = stretches[-1][1]
    if last + 1 < end:
        yield f"{name}: offsets {last + 1}..{end - 1} are in no object"
    elif last + 1 > end:
        yield f"{name}: {stretches[-1][2]} ends at {last}, past the high watermark {end}"


def shown(partition: PartitionId) -> str:
    return f"{partition.topic_id}/{partition.partition}"
