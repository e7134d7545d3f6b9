"""Read a lane from the store alone: the newest snapshot, then every object after it.

Owns the order of reads that makes this safe while another process writes, rewrites and deletes.
Must never trust a snapshot past the number it names, nor anything on a local disk.
"""

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple

from holdfast.environment import Environment
from holdfast.errors import CorruptObject, ObjectNotFound
from holdfast.identifiers import LaneId, LaneNumber
from holdfast.lane.cursor import Cursor
from holdfast.lane.entry import EntryHeader, EntryKind, facts_of, parse_header
from holdfast.lane.floor import read_floor
from holdfast.lane.keys import (
    entry_key,
    entry_prefix,
    number_in,
    snapshot_key,
    snapshot_prefix,
)
from holdfast.lane.snapshot import Snapshot, decode_snapshot
from holdfast.lane.state import StateKind, StateT
from holdfast.store.interface import Store
from holdfast.store.patience import patiently

HEAD_BYTES = 64 * 1024
"""The size of the first read of an object: nearly always the header and all facts."""
READS_AT_ONCE = 16
RESTARTS_MAX = 20


class EntryHead(NamedTuple):
    """A lane object without its payload."""

    header: EntryHeader
    facts: bytes


@dataclasses.dataclass(slots=True, kw_only=True)
class Recovered(Generic[StateT]):
    """A lane as the store had it at one moment."""

    cursor: Cursor
    state: StateT
    snapshot_number: LaneNumber
    """The number of the snapshot that was used; -1 if none was."""
    entries_read: int = 0


async def read_head(
    store: Store,
    environment: Environment,
    lane: LaneId,
    number: int,
) -> EntryHead | None:
    """Return the checked header and facts of one object; None if there is no such object."""
    key = entry_key(lane, number)

    async def attempt() -> EntryHead | None:
        try:
            data = await store.read(key, start=0, length=HEAD_BYTES)
            header = parse_header(data, key=key)
            if header.payload_start > len(data):
                data = await store.read(key, start=0, length=header.payload_start)
        except ObjectNotFound:
            return None
        return EntryHead(header, facts_of(header, data, key=key))

    return await patiently(attempt, environment=environment)


async def recover(
    store: Store, environment: Environment, lane: LaneId, kind: StateKind[StateT]
) -> Recovered[StateT]:
    """Rebuild a lane's state; start over if the floor moves past the objects being read."""
    for _ in range(RESTARTS_MAX):
        snapshot = await _newest_snapshot(store, environment, lane)
        recovered = _start_from(snapshot, lane, kind)
        first = recovered.cursor.next_number
        problem: CorruptObject | None = None
        try:
            await follow(store, environment, recovered, kind)
        except CorruptObject as error:
            problem = error
        # While we read, objects after our snapshot may have been deleted, and even created again
        # by a stalled claimer. Then the floor is past them, and the state we built is wrong.
        if await read_floor(store, environment, lane) <= first:
            if problem is not None:
                raise problem
            return recovered
    raise CorruptObject(
        f"lane {lane}: brokers have deleted its oldest objects, and no readable snapshot under"
        f" {snapshot_prefix(lane)} covers them (tried {RESTARTS_MAX} times): restore the snapshots"
        " from a backup"
    )


def _start_from(
    snapshot: Snapshot | None, lane: LaneId, kind: StateKind[StateT]
) -> Recovered[StateT]:
    if snapshot is None:
        return Recovered(
            cursor=Cursor.at_start_of(lane), state=kind.empty(), snapshot_number=LaneNumber(-1)
        )
    return Recovered(
        cursor=snapshot.cursor,
        state=kind.decode(snapshot.state),
        snapshot_number=snapshot.number,
    )


async def _newest_snapshot(store: Store, environment: Environment, lane: LaneId) -> Snapshot | None:
    entries = await patiently(lambda: store.list(snapshot_prefix(lane)), environment=environment)
    numbers = sorted(n for entry in entries if (n := number_in(entry.key)) is not None)
    for number in reversed(numbers):
        key = snapshot_key(lane, number)

        async def attempt(key: str = key, number: LaneNumber = number) -> Snapshot | None:
            try:
                data = await store.read(key)
            except ObjectNotFound:
                return None
            return decode_snapshot(data, key=key, lane=lane, number=number)

        try:
            snapshot = await patiently(attempt, environment=environment)
        except CorruptObject:
            continue  # an older snapshot, and more entries, give the same state
        if snapshot is not None:
            return snapshot
    return None


async def follow(
    store: Store,
    environment: Environment,
    recovered: Recovered[StateT],
    kind: StateKind[StateT],
) -> None:
    """Apply all objects after the cursor: read many at once, then probe for the next number.

    A missing number is corruption, unless the floor has moved past it: the caller checks that.
    """
    lane = recovered.cursor.lane
    after = (
        entry_key(lane, recovered.cursor.next_number - 1) if recovered.cursor.next_number else ""
    )
    listed = await patiently(
        lambda: store.list(entry_prefix(lane), after=after), environment=environment
    )
    expected = len(listed)
    last = max((n for entry in listed if (n := number_in(entry.key)) is not None), default=-1)
    while True:
        first = recovered.cursor.next_number
        count = max(1, min(READS_AT_ONCE, expected))
        heads = await asyncio.gather(
            *(read_head(store, environment, lane, first + i) for i in range(count))
        )
        for head in heads:
            if head is None:
                number = recovered.cursor.next_number
                if number < last:
                    raise CorruptObject(
                        f"{entry_key(lane, number)}: is missing, but the lane continues up to"
                        f" number {last}"
                    )
                return
            apply_head(recovered, head, kind)
        expected -= len(heads)


def apply_head(
    recovered: Recovered[StateT], head: EntryHead, kind: StateKind[StateT]
) -> Sequence[Any]:
    """Advance by one object, in the same steps as the live path."""
    recovered.cursor = recovered.cursor.advance(head.header)
    recovered.entries_read += 1
    facts: Sequence[Any] = ()
    if head.header.kind is EntryKind.CLAIM:
        recovered.state.claimed(head.header, recovered.cursor.leader_epoch)
    elif head.header.kind is EntryKind.DATA:
        facts = kind.decode_facts(head.facts)
        for fact in facts:
            recovered.state.apply(fact)
        recovered.state.index(head.header, facts)
        recovered.state.publish(facts)
    return facts
