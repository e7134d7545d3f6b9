"""State runs in the object store: read the pinned ones, write a new one.

Owns the I/O, whatever a run contains. If the bytes that were read are not the pinned ones, the read
is repeated a few times and then reported as corrupt. Must never list the store: objects that are
not pinned are left alone. Must never replace an object.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from holdfast.environment import Environment
from holdfast.errors import InvariantViolation, ObjectNotFound
from holdfast.keyed_state.pinned import RunInfo
from holdfast.store.interface import Buffers, Store
from holdfast.store.patience import patiently
from holdfast.store.put_if_absent import Lost, put_if_absent

READS_AT_ONCE = 8
GIVE_UP_AFTER_S = 120.0
"""After this time the task fails, and Spark runs it again, possibly elsewhere."""

Loaded = TypeVar("Loaded")


async def read_runs(
    store: Store,
    infos: Sequence[RunInfo],
    decode: Callable[[bytes, RunInfo], Loaded],
    *,
    environment: Environment,
) -> list[Loaded]:
    """Return the runs in the same order, each checked against its pinned description."""
    slots = asyncio.Semaphore(READS_AT_ONCE)

    async def read(info: RunInfo) -> Loaded:
        async def once() -> Loaded:
            try:
                data = await store.read(info.name)
            except ObjectNotFound as error:
                raise ObjectNotFound(
                    f"{info.name}: the ledger names this state run, but it is not in {store.url}:"
                    " if a newer micro-batch was committed in the meantime, start again; if it was"
                    " deleted by hand, restore it"
                ) from error
            return decode(data, info)

        async with slots:
            return await patiently(once, environment=environment, give_up_after_s=GIVE_UP_AFTER_S)

    return list(await asyncio.gather(*(read(info) for info in infos)))


async def write_run(
    store: Store, info: RunInfo, body: Buffers, *, environment: Environment
) -> None:
    """Write a run, which is durable when this returns.

    Another body under the same name is a bug, because attempts are unique. The header has the
    checksum of the rows, so an equal header means the same run.
    """
    header = bytes(body[0])
    outcome = await put_if_absent(
        store,
        info.name,
        body,
        is_ours=lambda found: found == header,
        identify_bytes=len(header),
        environment=environment,
        deadline_seconds=GIVE_UP_AFTER_S,
    )
    if isinstance(outcome, Lost):
        raise InvariantViolation(
            f"{info.name}: another state run with this name exists: two attempts used one name"
        )
