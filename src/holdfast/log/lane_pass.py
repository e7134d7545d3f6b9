"""A step of a rewrite: reads each of the oldest lane objects once and cuts it by partition.

Owns the read-ahead and the size of a step, which bounds its memory and how much a crash can undo.
Slices are views of the object that was read, so the object stays in memory until the last of its
partitions is written. That is why the step is bounded, and not each partition.
Must never write, and never change a log.
"""

import asyncio
import itertools
from bisect import bisect_right
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from holdfast.environment import Environment
from holdfast.errors import CorruptObject
from holdfast.identifiers import LaneId
from holdfast.lane.entry import check_payload, parse_header
from holdfast.lane.keys import entry_key
from holdfast.log.data_lane import DataLane
from holdfast.log.facts import SegmentRef
from holdfast.log.memory import PINNED_RATIO_MAX, Buffer, Payload
from holdfast.log.partition import PartitionLog, PartitionRun, RunColumns, leader_epoch_at
from holdfast.log.segment import SegmentBuilder
from holdfast.log.state import LogState
from holdfast.records.batch import parse_header as parse_batch_header
from holdfast.store.patience import patiently

READS_AHEAD = 4
"""How many objects are read ahead. Few, because producers' puts wait for the same threads."""
RUN_COST_BYTES = 256
"""The memory that a slice takes beside its content."""
GIVE_UP_AFTER_S = 25.0
RESTS = 2
"""A rewrite rests this many times as long as it works, so that the disk and the event loop stay
free for producers. At full speed it made a quiet producer wait for seconds."""
WORK_MIN_S = 0.005
"""The shortest work that is followed by a rest, because timers are not finer."""
REST_MAX_S = 10.0
"""The longest rest. If the work was long because the store hung, nothing was busy anyway."""


class Pace:
    """Makes background work rest between its steps, in proportion to the time it worked.

    Rests and pauses between retries do not count as work. Work that overlaps counts once.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._under_way = 0
        self._since = 0.0
        self._worked_s = 0.0

    @contextmanager
    def working(self) -> Generator[None]:
        """Count what runs inside as work: on the event loop, or in a call of the store."""
        if not self._under_way:
            self._since = self._environment.monotonic()
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._worked_s += self._environment.monotonic() - self._since

    async def rest(self) -> None:
        if self._worked_s >= WORK_MIN_S:
            pause_s = min(REST_MAX_S, RESTS * self._worked_s)
            self._worked_s = 0.0
            await asyncio.sleep(pause_s)


class PartitionStep:
    """One partition's share of a step: its runs, and the segments made of them."""

    __slots__ = ("_next", "builder", "log", "new", "runs")

    def __init__(self, log: PartitionLog, count: int) -> None:
        self.log = log
        self.runs = RunColumns()
        # A copy: the log forgets runs when its start moves.
        for mine, column in zip(self.runs.columns(), log.runs.columns(), strict=True):
            mine.extend(column[:count])
        self.builder = SegmentBuilder(log.partition)
        self.new: list[SegmentRef] = []
        self._next = 0

    def next_run(self) -> PartitionRun:
        self._next += 1
        return self.runs.get(self._next - 1)


class RewriteStep(NamedTuple):
    """The oldest lane objects that still hold records, up to a number."""

    up_to: int
    partitions: list[PartitionStep]
    objects: dict[int, list[PartitionStep]]
    """The partitions that have a run in each object, in order of the objects' numbers."""


def plan_step(state: LogState, up_to: int, *, bytes_max: int, entries_max: int) -> RewriteStep:
    """Plan a step over as many objects as the bounds allow, at least one, never past `up_to`."""
    costs: dict[int, int] = {}
    for log in state.partitions.values():
        # The oldest objects of the lane are among the oldest of each partition.
        for number, size in zip(log.runs.number[: entries_max + 1], log.runs.size, strict=False):
            if number > up_to:
                break
            costs[number] = costs.get(number, 0) + size + RUN_COST_BYTES
    taken = 0
    end = up_to
    for i, number in enumerate(sorted(costs)):
        taken += costs[number]
        if i > 0 and (i >= entries_max or taken > bytes_max):
            end = number - 1
            break
    partitions: list[PartitionStep] = []
    objects: dict[int, list[PartitionStep]] = {n: [] for n in sorted(costs) if n <= end}
    for log in state.partitions.values():
        count = bisect_right(log.runs.number, end)
        if count:
            part = PartitionStep(log, count)
            partitions.append(part)
            for number in part.runs.number:
                objects[number].append(part)
    return RewriteStep(end, partitions, objects)


class ReadAhead:
    """The payloads of objects, in order, with a few more being read ahead."""

    def __init__(self, lane: DataLane, numbers: Sequence[int], pace: Pace) -> None:
        self._lane = lane
        self._numbers = iter(numbers)
        self._pace = pace
        self._loads: deque[asyncio.Task[Payload]] = deque()

    async def next(self) -> Payload:
        loop = asyncio.get_running_loop()
        for number in itertools.islice(self._numbers, 1 + READS_AHEAD - len(self._loads)):
            load = loop.create_task(_load(self._lane, number, self._pace))
            # If an earlier load failed, no caller waits for this one: mark its error as read.
            load.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._loads.append(load)
        payload = await self._loads[0]
        self._loads.popleft()
        return payload

    def close(self) -> None:
        """Cancel the reads under way, without waiting for them."""
        for load in self._loads:
            load.cancel()


async def _load(lane: DataLane, number: int, pace: Pace) -> Payload:
    """Return an object's payload from the tail, or by one read of the whole object."""
    held = lane.tail.get(lane.lane, number)
    if held is not None:
        return held
    key = entry_key(lane.lane, number)

    async def attempt() -> Payload:
        with pace.working():
            data = await lane.store.read(key)
            return open_payload(data, lane.lane, number, key=key)

    return await patiently(attempt, environment=lane.environment, give_up_after_s=GIVE_UP_AFTER_S)


def open_payload(data: bytes, lane: LaneId, number: int, *, key: str) -> Payload:
    """Return the payload of a whole lane object, checked against its header."""
    header = parse_header(data, key=key)
    if (header.lane, header.number) != (lane, number):
        raise CorruptObject(f"{key}: its header says number {header.number} of lane {header.lane}")
    payload = memoryview(data)[header.payload_start :]
    check_payload(header, payload, key=key)
    return Payload([payload])


def slice_run(
    payload: Payload, run: PartitionRun, log: PartitionLog, *, live_bytes: int
) -> list[Buffer]:
    """Return the batches of a run as views, or as copies if views would keep much dead memory."""
    if run.position + run.size_bytes > payload.size_bytes:
        raise _unlike(run, log, f"the object has only {payload.size_bytes} payload bytes")
    batches = payload.slice(run.position, run.size_bytes)
    first = parse_batch_header(batches[0])
    if first.base_offset != run.base_offset:
        raise _unlike(run, log, f"the record batch there starts at offset {first.base_offset}")
    leader_epoch = leader_epoch_at(log.epochs, run.base_offset)
    if leader_epoch is not None and first.leader_epoch != leader_epoch:
        raise _unlike(
            run, log, f"its leader epoch is {first.leader_epoch}; {leader_epoch} is expected"
        )
    if payload.size_bytes > PINNED_RATIO_MAX * live_bytes:
        return [bytes(batch) for batch in batches]
    return batches


def _unlike(run: PartitionRun, log: PartitionLog, problem: str) -> CorruptObject:
    return CorruptObject(
        f"{log.partition}: lane object {run.number} should hold offsets"
        f" {run.base_offset}..{run.last_offset} at byte {run.position}, but does not: {problem}"
    )
