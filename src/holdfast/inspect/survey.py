"""A survey of what a store holds, made with reads alone: the cluster, its lanes, its topics.

Owns the rows that `holdfast inspect` shows. Reads a lane as a broker would (newest snapshot, then
the objects after it), except for the claims, which it follows backwards.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from holdfast.cluster.state import ControlState, ControlStateKind
from holdfast.environment import Environment
from holdfast.errors import ConfigurationError, StopError
from holdfast.identifiers import CONTROL_LANE, LaneId, LaneNumber, PartitionId
from holdfast.lane.entry import EntryKind, decode_claim
from holdfast.lane.floor import read_floor
from holdfast.lane.keys import entry_prefix, number_in, snapshot_prefix
from holdfast.lane.recovery import EntryHead, Recovered, read_head, recover
from holdfast.lane.state import StateKind
from holdfast.log.state import LogState, LogStateKind
from holdfast.store.interface import ObjectEntry, Store
from holdfast.store.patience import patiently


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRow:
    """One hand-off of a lane: the claim of its new owner."""

    number: int
    leader_epoch: int
    broker_id: int
    address: str
    claimed_ms: int
    how: str
    """How the lane came from the previous owner: first, released, taken; unknown if the object
    before the claim is gone."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EntryRow:
    """One lane object."""

    number: int
    kind: str
    facts: int
    facts_bytes: int
    payload_bytes: int
    written_ms: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LaneRow:
    """One lane."""

    lane: int
    floor: int
    snapshot_number: int
    """The newest snapshot; -1 if there is none."""
    next_number: int
    leader_epoch: int
    released: bool
    objects: int
    bytes: int
    last_written_ms: int
    """When the newest object was written; -1 if nothing was written yet."""
    claims: list[ClaimRow]
    entries: list[EntryRow]
    problem: str | None = None
    """Why the lane cannot be read; None if it can."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MissingRow:
    """Offsets that a partition continued without."""

    base_offset: int
    last_offset: int
    claim: int
    """The claim of the broker on whose disk they may be."""
    missing_ms: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedPartition:
    """One partition; the numbers are None if its lane cannot be read."""

    partition: int
    lane: int
    log_start_offset: int | None
    high_watermark: int | None
    last_stable_offset: int | None
    """The last stable offset: below the high watermark while a transaction is open."""
    segments: int | None
    bytes: int | None
    awaits_claim: int | None = None
    """The claim whose disk may hold newer records; None if the partition waits for no disk."""
    missing: list[MissingRow] = dataclasses.field(default_factory=list[MissingRow])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedTopic:
    """One topic."""

    name: str
    topic_id: str
    configs: dict[str, str]
    deleted: bool
    partitions: list[SurveyedPartition]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Everything that a survey found."""

    store: str
    cluster_id: str
    data_lanes: int
    format_version: int
    brokers: dict[int, str]
    lanes: list[LaneRow]
    topics: list[SurveyedTopic]

    @property
    def problems(self) -> list[str]:
        return [lane.problem for lane in self.lanes if lane.problem is not None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SurveyParts:
    """The parts of a store to survey."""

    lane: int | None = None
    claims: int = 10
    entries: int = 0


def kind_of(lane: LaneId) -> StateKind[Any]:
    """Return the kind of state in a lane: lane 0 has the cluster, the others have logs."""
    return ControlStateKind() if lane == CONTROL_LANE else LogStateKind()


async def read_control(store: Store, environment: Environment) -> ControlState:
    """Return the cluster's state from lane 0. Raise ConfigurationError if the store has none."""
    recovered = await recover(store, environment, CONTROL_LANE, ControlStateKind())
    if not recovered.cursor.next_number:
        raise ConfigurationError(
            f"{store.url} has no lane 0, so it is not a Holdfast store: check the address, with"
            " its prefix"
        )
    return recovered.state


async def survey(store: Store, environment: Environment, wanted: SurveyParts) -> Survey:
    """Read what is wanted. If a lane cannot be read, its row says why."""
    control = await read_control(store, environment)
    lanes = [CONTROL_LANE, *(LaneId(i + 1) for i in range(control.lanes))]
    if wanted.lane is not None:
        if wanted.lane not in lanes:
            raise ConfigurationError(
                f"there is no lane {wanted.lane}: this store has lanes 0 to {control.lanes}"
            )
        lanes = [LaneId(wanted.lane)]
    rows: list[LaneRow] = []
    states: dict[int, LogState] = {}
    for lane in lanes:
        row, recovered = await _lane(store, environment, lane, wanted)
        rows.append(row)
        if recovered is not None and lane != CONTROL_LANE:
            states[lane] = recovered.state
    return Survey(
        store=store.url,
        cluster_id=control.cluster_id,
        data_lanes=control.lanes,
        format_version=control.format_version,
        brokers={b.broker_id: f"{b.host}:{b.port}" for b in control.brokers.values()},
        lanes=rows,
        topics=_topics(control, states, wanted.lane),
    )


async def _lane(
    store: Store, environment: Environment, lane: LaneId, wanted: SurveyParts
) -> tuple[LaneRow, Recovered[Any] | None]:
    problem: str | None = None
    recovered: Recovered[Any] | None = None
    claims: list[ClaimRow] = []
    entries: list[EntryRow] = []
    listed = numbered(await _list(store, environment, entry_prefix(lane)))
    try:
        recovered = await recover(store, environment, lane, kind_of(lane))
        claims = await _claims(store, environment, recovered, listed, wanted.claims)
        entries = await _entries(store, environment, recovered, wanted.entries)
    except StopError as error:
        problem = str(error)
    snapshots = numbered(await _list(store, environment, snapshot_prefix(lane)))
    cursor = recovered.cursor if recovered is not None else None
    row = LaneRow(
        lane=lane,
        floor=await read_floor(store, environment, lane),
        snapshot_number=max(snapshots, default=-1),
        next_number=cursor.next_number if cursor is not None else max(listed, default=-1) + 1,
        leader_epoch=cursor.leader_epoch if cursor is not None else -1,
        released=cursor is not None and cursor.released,
        objects=len(listed),
        bytes=sum(entry.size for entry in listed.values()),
        last_written_ms=listed[max(listed)].modified_ms if listed else -1,
        claims=claims,
        entries=entries,
        problem=problem,
    )
    return row, recovered


def numbered(listed: Sequence[ObjectEntry]) -> dict[int, ObjectEntry]:
    """Return the objects of a listing by their numbers, without objects that are not Holdfast's."""
    return {n: entry for entry in listed if (n := number_in(entry.key)) is not None}


async def _list(store: Store, environment: Environment, prefix: str) -> list[ObjectEntry]:
    return await patiently(lambda: store.list(prefix), environment=environment)


async def _claims(
    store: Store,
    environment: Environment,
    recovered: Recovered[Any],
    listed: dict[int, ObjectEntry],
    count_max: int,
) -> list[ClaimRow]:
    """Return the newest claims. The object before a claim names the previous claim."""
    cursor = recovered.cursor
    rows: list[ClaimRow] = []
    number = cursor.claim if cursor.writer is not None else -1
    leader_epoch = int(cursor.leader_epoch)
    while number >= 0 and len(rows) < count_max:
        head = await read_head(store, environment, cursor.lane, number)
        if head is None or head.header.kind is not EntryKind.CLAIM:
            break
        before = await read_head(store, environment, cursor.lane, number - 1) if number else None
        claim = decode_claim(head.facts)
        rows.append(
            ClaimRow(
                number=number,
                leader_epoch=leader_epoch,
                broker_id=claim.broker_id,
                address=claim.address,
                claimed_ms=claim.claimed_ms,
                how=_how(number, before),
            )
        )
        leader_epoch -= 1
        if before is not None:
            number = int(before.header.claim)
        else:
            # Below the floor only claims are left.
            number = max((n for n in listed if n < number), default=-1)
    return rows[::-1]


def _how(number: int, before: EntryHead | None) -> str:
    if number == 0:
        return "first"
    if before is None:
        return "unknown"
    return "released" if before.header.kind is EntryKind.RELEASE else "taken"


async def _entries(
    store: Store, environment: Environment, recovered: Recovered[Any], count: int
) -> list[EntryRow]:
    lane, end = recovered.cursor.lane, recovered.cursor.next_number
    rows: list[EntryRow] = []
    for number in range(max(0, end - count), end):
        head = await read_head(store, environment, lane, LaneNumber(number))
        if head is None:
            continue
        header = head.header
        is_data = header.kind is EntryKind.DATA
        rows.append(
            EntryRow(
                number=number,
                kind=header.kind.name.lower(),
                facts=len(kind_of(lane).decode_facts(head.facts)) if is_data else 0,
                facts_bytes=header.facts_bytes,
                payload_bytes=header.payload_bytes,
                written_ms=header.written_ms,
            )
        )
    return rows


def _topics(
    control: ControlState, states: dict[int, LogState], only_lane: int | None
) -> list[SurveyedTopic]:
    rows: list[SurveyedTopic] = []
    known = [(topic, False) for topic in control.topics.values()]
    known += [(topic, True) for topic in control.deleted.values()]
    for topic, deleted in sorted(known, key=lambda pair: (pair[0].name, pair[1])):
        partitions = [
            _partition(PartitionId(topic.topic_id, i), lane, states.get(lane))
            for i, lane in enumerate(topic.lanes)
            if only_lane is None or lane == only_lane
        ]
        if partitions or only_lane is None:
            rows.append(
                SurveyedTopic(
                    name=topic.name,
                    topic_id=str(topic.topic_id),
                    configs=topic.configs,
                    deleted=deleted,
                    partitions=partitions,
                )
            )
    return rows


def _partition(partition: PartitionId, lane: int, state: LogState | None) -> SurveyedPartition:
    if state is None:
        return SurveyedPartition(
            partition=partition.partition,
            lane=lane,
            log_start_offset=None,
            high_watermark=None,
            last_stable_offset=None,
            segments=None,
            bytes=None,
        )
    log = state.log_of(partition)
    return SurveyedPartition(
        partition=partition.partition,
        lane=lane,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        segments=len(log.segments),
        bytes=log.stored_bytes,
        awaits_claim=log.awaits_claim,
        missing=[
            MissingRow(
                base_offset=hole.base_offset,
                last_offset=hole.last_offset,
                claim=hole.claim,
                missing_ms=hole.missing_ms,
            )
            for hole in log.missing
        ],
    )
