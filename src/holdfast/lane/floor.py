"""The durable floor of a lane: numbers below it are gone and must never be won again.

The floor is written before anything below it is deleted. A create that succeeds below the floor
has won nothing. Who must look? A writer's next data object can only have been taken by a *claim*
(whoever extends a lane that is not its own starts with one), and claims are never deleted. So the
hot path needs no look at the floor; only a claimer, whose number may have been taken by anything,
looks after its create. See docs/adr/0002-claims-are-never-deleted.md.
"""

from holdfast.environment import Environment
from holdfast.identifiers import LaneId, LaneNumber
from holdfast.lane.keys import floor_key, floor_prefix, number_in
from holdfast.store.interface import Store
from holdfast.store.patience import patiently


async def read_floor(
    store: Store, environment: Environment, lane: LaneId, *, give_up_after_s: float | None = None
) -> LaneNumber:
    """The lowest number that may still be there; 0 where nothing was ever deleted."""
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
    """Make the floor durable at `number`; when this returns, what is below may be deleted."""
    key = floor_key(lane, number)
    # Any answer but "unavailable" means that the key is there, and its name is all that it says.
    while (await patiently(lambda: store.size(key), environment=environment)) is None:
        await patiently(lambda: store.create(key, [b"floor\n"]), environment=environment)
    entries = await patiently(lambda: store.list(floor_prefix(lane)), environment=environment)
    older = [e.key for e in entries if (n := number_in(e.key)) is not None and n < number]
    if older:
        await patiently(lambda: store.delete(older), environment=environment)
