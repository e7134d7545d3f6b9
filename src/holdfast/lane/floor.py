"""The durable floor of a lane: numbers below it are deleted and must never be created again.

The floor is written before anything below it is deleted. A create that succeeds below the floor
does not count. An owner's first put of a number need not check that: only a *claim* can have taken
the number, because another broker starts with one, and claims are never deleted. So the hot path
does not read the floor. A claimer does after its create, because any object may have had its
number, and so does an owner after a repeated put. See docs/adr/0002-claims-are-never-deleted.md.
"""

from collections.abc import Sequence

from holdfast.environment import Environment
from holdfast.identifiers import LaneId, LaneNumber
from holdfast.lane.keys import entry_key, entry_prefix, floor_key, floor_prefix, number_in
from holdfast.store.interface import Store
from holdfast.store.patience import patiently

DELETES_AT_ONCE = 500


async def read_floor(
    store: Store, environment: Environment, lane: LaneId, *, give_up_after_s: float | None = None
) -> LaneNumber:
    """Return the lowest number that may still exist; 0 if nothing was ever deleted."""
    entries = await patiently(
        lambda: store.list(floor_prefix(lane)),
        environment=environment,
        give_up_after_s=give_up_after_s,
    )
    numbers = [number for entry in entries if (number := number_in(entry.key)) is not None]
    return max(numbers, default=LaneNumber(0))


async def raise_floor(
    store: Store, environment: Environment, lane: LaneId, number: LaneNumber
) -> None:
    """Make the floor durable at `number`. When this returns, lower numbers may be deleted."""
    key = floor_key(lane, number)
    # It does not matter which broker creates the object: the floor is in its key.
    while (await patiently(lambda: store.size(key), environment=environment)) is None:
        await patiently(lambda: store.create(key, [b"floor\n"]), environment=environment)
    entries = await patiently(lambda: store.list(floor_prefix(lane)), environment=environment)
    older = [e.key for e in entries if (n := number_in(e.key)) is not None and n < number]
    if older:
        await patiently(lambda: store.delete(older), environment=environment)


async def sweep(
    store: Store,
    environment: Environment,
    lane: LaneId,
    keep: Sequence[int],
    *,
    up_to: LaneNumber,
) -> int:
    """Delete objects below the floor, including those that an earlier owner left.

    Never past `up_to`, because `keep` names all claims only up to there: a newer owner may have
    raised the floor over claims that this owner does not know, and claims must stay.
    """
    floor = await read_floor(store, environment, lane)
    floor = LaneNumber(min(floor, up_to + 1))
    if floor == 0:
        return 0
    kept = {entry_key(lane, claim) for claim in keep}
    entries = await patiently(lambda: store.list(entry_prefix(lane)), environment=environment)
    limit = entry_key(lane, floor)
    gone = [e.key for e in entries if e.key < limit and e.key not in kept]
    for i in range(0, len(gone), DELETES_AT_ONCE):
        keys = gone[i : i + DELETES_AT_ONCE]
        await patiently(lambda keys=keys: store.delete(keys), environment=environment)
    return len(gone)
