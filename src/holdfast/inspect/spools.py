"""Compare a spool directory with the store, for `holdfast inspect --spool`.

Owns the rows. Each says how far a spool can be trusted, and which of its records are nowhere else.
Must never write to the store or to the directory: a broker may be using them.
"""

import dataclasses

from holdfast.environment import Environment
from holdfast.identifiers import PartitionId
from holdfast.lane.entry import EntryKind
from holdfast.lane.recovery import read_head, recover
from holdfast.lane.spool.disk import Disk, LocalDisk
from holdfast.lane.spool.frames import SpoolId
from holdfast.lane.spool.spool import Spooled, read_spool, spools_on
from holdfast.log.spool_replay import batches_in
from holdfast.log.state import LogState, LogStateKind
from holdfast.store.interface import Store


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SpooledRow:
    """Offsets of one partition that a spool has and the store does not."""

    topic_id: str
    partition: int
    first_offset: int
    last_offset: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SpoolRow:
    """One spool: it belongs to one claim of a lane, by one writer."""

    lane: int
    claim: int
    writer: str
    files: int
    frames: int
    record_batches: int
    bytes: int
    torn_bytes: int
    problems: list[str]
    """Reasons why the rest of a file is ignored."""
    state: str
    """owner: it belongs to the newest claim; awaited: partitions wait for it; given up: the log
    continued without it; stored: the store has all of it; foreign: it belongs to another store."""
    not_in_store: list[SpooledRow]


async def survey_spools(folder: str, store: Store, environment: Environment) -> list[SpoolRow]:
    """Return a row for each spool in a directory."""
    disk = LocalDisk(folder)
    try:
        found = sorted((await spools_on(disk)).items())
        return [await _row(disk, spool, parts, store, environment) for spool, parts in found]
    finally:
        await disk.close()


async def _row(
    disk: Disk, spool: SpoolId, parts: list[str], store: Store, environment: Environment
) -> SpoolRow:
    spooled = await read_spool(disk, spool, parts)
    head = await read_head(store, environment, spool.lane, spool.claim)
    is_ours = (
        head is not None
        and head.header.kind is EntryKind.CLAIM
        and head.header.writer == spool.writer
    )
    batches = [fact for frame in spooled.frames for fact, _ in batches_in(frame)]
    state, beyond = "foreign", list[SpooledRow]()
    if is_ours:
        recovered = await recover(store, environment, spool.lane, LogStateKind())
        beyond = _beyond(spooled, recovered.state)
        is_newest = recovered.cursor.claim == spool.claim and not recovered.cursor.released
        state = "owner" if is_newest else _state(spool, recovered.state)
    return SpoolRow(
        lane=spool.lane,
        claim=spool.claim,
        writer=spool.writer.hex(),
        files=len(parts),
        frames=len(spooled.frames),
        record_batches=len(batches),
        bytes=sum(fact.size_bytes for fact in batches),
        torn_bytes=spooled.torn_bytes,
        problems=spooled.problems,
        state=state,
        not_in_store=beyond,
    )


def _state(spool: SpoolId, state: LogState) -> str:
    logs = list(state.partitions.values())
    if any(log.awaits_claim == spool.claim for log in logs):
        return "awaited"
    if any(missing.claim == spool.claim for log in logs for missing in log.missing):
        return "given up"
    return "stored"


def _beyond(spooled: Spooled, state: LogState) -> list[SpooledRow]:
    ends: dict[PartitionId, tuple[int, int]] = {}
    for frame in spooled.frames:
        for fact, _ in batches_in(frame):
            log = state.log_of(fact.partition)
            is_missing = any(
                missing.base_offset <= fact.base_offset <= missing.last_offset
                for missing in log.missing
            )
            if fact.base_offset >= log.log_end_offset or is_missing:
                first, _ = ends.get(fact.partition, (fact.base_offset, 0))
                ends[fact.partition] = (first, fact.last_offset)
    return [
        SpooledRow(
            topic_id=str(partition.topic_id),
            partition=partition.partition,
            first_offset=first,
            last_offset=last,
        )
        for partition, (first, last) in sorted(ends.items())
    ]
