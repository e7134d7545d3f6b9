"""Check one lane: the checksums of its objects, their hash chain, and the state that they build.

Owns the walk from the floor to the end, with the snapshots on the way. After a damaged object it
continues at the next one that can be read, and resumes the state from the next snapshot.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.cluster.state import ControlState
from holdfast.environment import Environment
from holdfast.errors import NOT_JSON, CorruptObject, ObjectNotFound, StopError
from holdfast.identifiers import LaneId, LaneNumber, LeaderEpoch
from holdfast.inspect.findings import Findings
from holdfast.inspect.lane_audit import payload_problems, unreadable_in_payload
from holdfast.inspect.survey import kind_of, numbered
from holdfast.lane.cursor import Cursor
from holdfast.lane.entry import (
    EntryHeader,
    EntryKind,
    check_payload,
    decode_claim,
    facts_of,
    parse_header,
)
from holdfast.lane.floor import read_floor
from holdfast.lane.keys import (
    entry_key,
    entry_prefix,
    floor_prefix,
    snapshot_key,
    snapshot_prefix,
)
from holdfast.lane.snapshot import Snapshot, decode_snapshot
from holdfast.log.state import LogState
from holdfast.store.interface import ObjectEntry, Store
from holdfast.store.patience import patiently

READS_AT_ONCE = 8
UNREADABLE = (CorruptObject, *NOT_JSON, ValueError)
"""Errors of an object with a wrong checksum, or with content that this version cannot read."""


FLOOR_BODY = b"floor\n"


class StoreMoved(Exception):
    """A broker is writing to the lane, and has raised its floor above what was still to be read."""


class LaneWalk:
    """The walk over one lane; `state` is None while damage makes it unknown."""

    def __init__(
        self, store: Store, environment: Environment, lane: LaneId, findings: Findings
    ) -> None:
        self._store = store
        self._environment = environment
        self._findings = findings
        self._kind = kind_of(lane)
        self._floor = LaneNumber(0)
        self._listed: dict[int, ObjectEntry] = {}
        self._snapshots: dict[int, Snapshot] = {}
        self._epoch_known = False
        self._claims: list[int] = []
        self.lane = lane
        self.cursor: Cursor | None = None
        self.state: Any = None
        self.last_known: Any = None
        """The newest state. If damage makes that unknown, the last state before the damage."""

    async def run(self) -> None:
        """Read the whole lane. Raise StoreMoved if it must be read again from the start."""
        await self._list_all()
        await self._read_snapshots()
        await self._read_kept_claims()
        if self._floor == 0:
            self.cursor = Cursor.at_start_of(self.lane)
            self._epoch_known = True
            self.state = self._kind.empty()
        else:
            self._start_at_floor()
        self.last_known = self.state
        end = max(self._listed, default=-1) + 1
        numbers = range(self._floor, end)
        for i in range(0, len(numbers), READS_AT_ONCE):
            some = numbers[i : i + READS_AT_ONCE]
            bodies = await asyncio.gather(*(self._read(entry_key(self.lane, n)) for n in some))
            for number, body in zip(some, bodies, strict=True):
                if body is None:
                    await self._missing(number)
                else:
                    self._findings.read(len(body))
                    self._take(number, body)
                self._meet_snapshot(number)
        if self.state is not None:
            self.last_known = self.state
        await self._check_claims_are_there()

    async def _list_all(self) -> None:
        floors = numbered(await self._list(floor_prefix(self.lane)))
        self._floor = LaneNumber(max(floors, default=0))
        for entry in floors.values():
            body = await self._read(entry.key)
            if body is not None and body != FLOOR_BODY:
                self._findings.harm(
                    entry.key, f"it contains {body[:20]!r}; it must contain {FLOOR_BODY!r}"
                )
        self._listed = numbered(await self._list(entry_prefix(self.lane)))

    async def _list(self, prefix: str) -> list[ObjectEntry]:
        return await patiently(lambda: self._store.list(prefix), environment=self._environment)

    async def _read(self, key: str) -> bytes | None:
        try:
            return await patiently(lambda: self._store.read(key), environment=self._environment)
        except ObjectNotFound:
            return None

    async def _read_snapshots(self) -> None:
        for number, entry in numbered(await self._list(snapshot_prefix(self.lane))).items():
            data = await self._read(entry.key)
            if data is None:
                continue  # a newer one took its place
            self._findings.read(len(data))
            try:
                snapshot = decode_snapshot(
                    data, key=entry.key, lane=self.lane, number=LaneNumber(number)
                )
                self._kind.decode(snapshot.state)
            except UNREADABLE as error:
                self._findings.harm(entry.key, str(error))
            else:
                self._snapshots[number] = snapshot

    async def _read_kept_claims(self) -> None:
        """Check the objects below the floor: only claims are kept there, and for ever."""
        for number in sorted(n for n in self._listed if n < self._floor):
            key = entry_key(self.lane, number)
            body = await self._read(key)
            if body is None:
                raise StoreMoved
            self._findings.read(len(body))
            header = self._check_bytes(number, body)
            if header is None:
                continue
            if header.kind is EntryKind.CLAIM:
                self._claims.append(number)
            else:
                self._findings.left_over(
                    key,
                    f"no longer needed (the lane's floor is {self._floor}); a broker will delete"
                    " it",
                )

    def _start_at_floor(self) -> None:
        before = self._snapshots.get(self._floor - 1)
        if before is not None:
            self._resume_from(before)
        elif not any(number >= self._floor for number in self._snapshots):
            self._findings.harm(
                snapshot_prefix(self.lane),
                f"brokers have deleted the objects below number {self._floor}, and no readable"
                " snapshot covers them",
            )

    def _resume_from(self, snapshot: Snapshot) -> None:
        self.cursor = snapshot.cursor
        self._epoch_known = True
        self.state = self._kind.decode(snapshot.state)

    def _take(self, number: int, body: bytes) -> None:
        header = self._check_bytes(number, body)
        if header is None:
            self._lose_track()
            return
        key = entry_key(self.lane, number)
        if self.cursor is not None:
            try:
                self.cursor = self.cursor.advance(header)
            except CorruptObject as error:
                self._findings.harm(key, str(error))
                self._lose_track()
        if self.cursor is None:
            self.cursor = _after(header)
        if header.kind is EntryKind.CLAIM:
            self._claims.append(number)
            if self.state is not None:
                self.state.claimed(header, self.cursor.leader_epoch)
        elif header.kind is EntryKind.DATA:
            facts = self._kind.decode_facts(facts_of(header, body, key=key))
            leader_epoch = int(self.cursor.leader_epoch) if self._epoch_known else None
            for problem in payload_problems(facts, body[header.payload_start :], leader_epoch):
                self._findings.harm(key, problem)
            for problem in unreadable_in_payload(facts, body[header.payload_start :]):
                self._findings.unreadable(key, problem)
            self._apply(key, header, facts)

    def _check_bytes(self, number: int, body: bytes) -> EntryHeader | None:
        """Return the header of an object. If any byte is wrong, report that and return None."""
        key = entry_key(self.lane, number)
        try:
            header = parse_header(body, key=key)
            facts = facts_of(header, body, key=key)
            check_payload(header, body[header.payload_start :], key=key)
            if (header.lane, header.number) != (self.lane, number):
                raise CorruptObject(f"its header says number {header.number} of lane {header.lane}")
            if header.kind is EntryKind.CLAIM:
                decode_claim(facts)
            elif header.kind is EntryKind.DATA:
                self._kind.decode_facts(facts)
        except UNREADABLE as error:
            self._findings.harm(key, str(error))
            return None
        return header

    def _apply(self, key: str, header: EntryHeader, facts: Sequence[Any]) -> None:
        if self.state is None:
            return
        try:
            for fact in facts:
                self.state.apply(fact)
            self.state.index(header, facts)
            self.state.publish(facts)
        except (StopError, KeyError) as error:
            self._findings.harm(key, f"it contradicts the objects before it: {error}")
            self.last_known, self.state = self.state, None

    async def _missing(self, number: int) -> None:
        if await read_floor(self._store, self._environment, self.lane) > self._floor:
            raise StoreMoved
        self._findings.harm(
            entry_key(self.lane, number),
            f"is missing, but the lane continues up to number {max(self._listed)}",
        )
        self._lose_track()

    def _lose_track(self) -> None:
        if self.state is not None:
            self.last_known = self.state
        self.cursor, self.state, self._epoch_known = None, None, False

    def _meet_snapshot(self, number: int) -> None:
        """Compare a snapshot with the state at its number. Resume from it if that is unknown."""
        snapshot = self._snapshots.get(number)
        if snapshot is None:
            return
        key = snapshot_key(self.lane, number)
        if self.cursor is not None and snapshot.cursor.hash != self.cursor.hash:
            self._findings.harm(
                key, f"it was made from another object than {entry_key(self.lane, number)}"
            )
        elif self.state is None or not self._epoch_known:
            self._resume_from(snapshot)
        elif snapshot.cursor != self.cursor:
            self._findings.harm(
                key, f"it says {snapshot.cursor}; the objects of the lane say {self.cursor}"
            )
        elif _settled(self._kind.decode(snapshot.state)) != _settled(self.state):
            self._findings.harm(
                key, "its state differs from the state that the lane's objects give"
            )

    async def _check_claims_are_there(self) -> None:
        """Check that no claim is missing. A stalled writer must find its number taken."""
        if isinstance(self.state, LogState):
            for number in sorted(set(self.state.claims) - set(self._claims)):
                key = entry_key(self.lane, number)
                if number not in self._listed and await self._store.size(key) is None:
                    self._findings.harm(
                        key, "is missing; it is a claim, and claims are kept forever"
                    )


def _after(header: EntryHeader) -> Cursor:
    """Return the cursor after an object whose predecessor cannot be read."""
    return Cursor(
        lane=header.lane,
        next_number=LaneNumber(header.number + 1),
        hash=header.hash,
        claim=header.claim,
        writer=header.writer,
        leader_epoch=LeaderEpoch(-1),
        released=header.kind is EntryKind.RELEASE,
    )


def _settled(state: Any) -> bytes:
    """Encode a state for comparison, as if everything in it were visible."""
    if isinstance(state, ControlState):
        copy = msgspec.msgpack.decode(state.encode(), type=ControlState)
        for topic in (*copy.topics.values(), *copy.deleted.values()):
            topic.partitions = len(topic.lanes)
        return copy.encode()
    return state.encode()
