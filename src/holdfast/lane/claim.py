"""Become the owner of a lane: put a claim at the lane's next number.

The broker whose put succeeds is the owner. A broker that finds its number taken is fenced. That
needs no lease, no clock and no other service. Owns the length of the wait before a new owner may
serve: until then the previous owner may still answer, and its offsets must not seem to go back.
The caller does the waiting.
"""

import dataclasses
from typing import Generic

import msgspec

from holdfast.environment import Environment
from holdfast.errors import CorruptObject, Fenced
from holdfast.identifiers import LaneId, WriterId
from holdfast.lane.cursor import Cursor
from holdfast.lane.entry import (
    HEADER_BYTES,
    Claim,
    EntryKind,
    SealedEntry,
    decode_claim,
    encode_claim,
    parse_header,
    seal,
)
from holdfast.lane.floor import read_floor
from holdfast.lane.keys import entry_key
from holdfast.lane.liveness import Liveness, NoProof
from holdfast.lane.recovery import follow, read_head, recover
from holdfast.lane.state import StateKind, StateT
from holdfast.store.interface import Store
from holdfast.store.put_if_absent import Lost, Won, put_if_absent

TRIES_MAX = 50
"""How often a claimer may lose in a row before it raises an error."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedLane(Generic[StateT]):
    """A lane that this process has owned since number `cursor.claim`."""

    cursor: Cursor
    state: StateT
    writer: WriterId
    released_by: Claim | None
    """The previous owner's claim, if it has released the lane: it will never answer again."""
    taken_from: Claim | None
    """The previous owner's claim, if it has not released the lane."""
    owed_ms: int
    """How long after `claimed_at` earlier owners may still answer. Serve nothing before that."""
    claimed_at: float
    """The monotonic time when the claim was known to be in the store."""
    started_at: float
    """The monotonic time when the put of the claim began."""
    entries_read: int


def put_entry_is_ours(writer: WriterId, key: str):
    """Return the `is_ours` of put_if_absent: was the existing object written by `writer`?"""

    def is_ours(head: bytes) -> bool:
        return parse_header(head, key=key).writer == writer

    return is_ours


async def put_entry(store: Store, environment: Environment, entry: SealedEntry) -> Won | Lost:
    """Put one lane object at its number, and retry until the outcome is certain."""
    key = entry_key(entry.header.lane, entry.header.number)
    return await put_if_absent(
        store,
        key,
        entry.body,
        is_ours=put_entry_is_ours(entry.header.writer, key),
        identify_bytes=HEADER_BYTES,
        environment=environment,
    )


async def claim_lane(
    store: Store,
    environment: Environment,
    lane: LaneId,
    kind: StateKind[StateT],
    claim: Claim,
    liveness: Liveness | None = None,
) -> ClaimedLane[StateT]:
    """Recover the lane and claim it. Raises Fenced if other brokers win every time."""
    liveness = liveness or NoProof()
    writer = environment.new_writer_id()
    recovered = await recover(store, environment, lane, kind)
    for _ in range(TRIES_MAX):
        cursor = recovered.cursor
        owner = await _owner(store, environment, cursor)
        owed_ms = 0 if owner is None or cursor.released else _owed_ms(owner, liveness)
        entry = seal(
            kind=EntryKind.CLAIM,
            lane=lane,
            number=cursor.next_number,
            claim=cursor.next_number,
            writer=writer,
            previous=cursor.hash,
            facts=encode_claim(msgspec.structs.replace(claim, owed_ms=owed_ms)),
            payload=(),
            written_ms=claim.claimed_ms,
        )
        started_at = environment.monotonic()
        outcome = await put_entry(store, environment, entry)
        if isinstance(outcome, Lost):
            try:
                await follow(store, environment, recovered, kind)
            except CorruptObject:
                # The number may have been deleted, and created again by another stalled claimer.
                if await read_floor(store, environment, lane) <= cursor.next_number:
                    raise
                writer = environment.new_writer_id()
                recovered = await recover(store, environment, lane, kind)
            continue
        if await read_floor(store, environment, lane) > entry.header.number:
            # We created a number that had been deleted: such a claim does not count.
            writer = environment.new_writer_id()
            recovered = await recover(store, environment, lane, kind)
            continue
        claimed = cursor.advance(entry.header)
        recovered.state.claimed(entry.header, claimed.leader_epoch)
        return ClaimedLane(
            cursor=claimed,
            state=recovered.state,
            writer=writer,
            released_by=owner if cursor.released else None,
            taken_from=None if cursor.released else owner,
            owed_ms=owed_ms,
            claimed_at=environment.monotonic(),
            started_at=started_at,
            entries_read=recovered.entries_read,
        )
    raise Fenced(
        f"lane {lane}: could not claim it in {TRIES_MAX} tries, because another broker keeps"
        " writing to it. Stop the other broker, or try again"
    )


def _owed_ms(owner: Claim, liveness: Liveness) -> int:
    """Return how long an owner that did not release, or its predecessors, may still answer.

    A dead owner may have died before it had waited for its predecessor.
    """
    return max(owner.owed_ms, 0 if liveness.has_ended(owner) else owner.valid_ms)


async def _owner(store: Store, environment: Environment, cursor: Cursor) -> Claim | None:
    """Return the lane's newest claim. Claims are never deleted, so it can always be read."""
    return (
        None
        if cursor.writer is None
        else await read_claim(store, environment, cursor.lane, cursor.claim)
    )


async def read_claim(store: Store, environment: Environment, lane: LaneId, number: int) -> Claim:
    """Return the claim with this number. Claims are never deleted."""
    head = await read_head(store, environment, lane, number)
    if head is None or head.header.kind is not EntryKind.CLAIM:
        raise CorruptObject(
            f"{entry_key(lane, number)}: this claim of lane {lane} is missing, or is another"
            " object: restore it from a backup"
        )
    return decode_claim(head.facts)
