"""Single landed objects in a store: creating them, and reading their facts or their proved bytes.

Owns the input and output of single objects. Must never answer "not there" for a read that failed.
"""

from holdfast.environment import Environment
from holdfast.errors import CorruptObject, ObjectNotFound
from holdfast.landing.blocks import decode_block, find_block, prove
from holdfast.landing.facts import Facts
from holdfast.store.interface import Buffers, Store
from holdfast.store.patience import patiently
from holdfast.store.put_if_absent import Backoff, Won, put_if_absent
from holdfast.store.wrapped import WrappedStore

TAIL_BYTES = 16 * 1024
"""Enough for the footer of a Parquet file with a few row groups, and the block before it."""


async def read_facts(store: Store, key: str, *, environment: Environment) -> Facts | None:
    """Return the facts of an object, by two small requests, or None if there is no object now."""

    async def read() -> Facts | None:
        found = await _read_block(store, key)
        if found is None:
            return None
        block, size = found
        facts = decode_block(block, key=key)
        if facts.size != size:
            raise CorruptObject(f"{key}: it has {size} bytes; its facts block says {facts.size}")
        return facts

    return await patiently(read, environment=environment)


async def read_proved(store: Store, key: str, *, environment: Environment) -> tuple[Facts, bytes]:
    """Return the whole object with its facts, every byte checked. Raises ObjectNotFound."""

    async def read() -> tuple[Facts, bytes]:
        body = await store.read(key)
        return prove(body, key=key), body

    return await patiently(read, environment=environment)


async def create(
    store: Store,
    key: str,
    body: Buffers,
    block: bytes,
    *,
    environment: Environment,
    backoff: Backoff | None = None,
    deadline_seconds: float | None = None,
) -> Facts | None:
    """Return None if our object is now at the key, or the facts of another writer's object."""

    def is_ours(found: bytes) -> bool:
        decode_block(found, key=key)
        return found == block

    outcome = await put_if_absent(
        _ByBlock(store),
        key,
        body,
        is_ours=is_ours,
        identify_bytes=len(block),
        environment=environment,
        backoff=backoff,
        deadline_seconds=deadline_seconds,
    )
    return None if isinstance(outcome, Won) else decode_block(outcome.body, key=key)


async def _read_block(store: Store, key: str) -> tuple[bytes, int] | None:
    size = await store.size(key)
    if size is None:
        return None
    start = max(0, size - TAIL_BYTES)
    try:
        tail = await store.read(key, start=start, length=size - start)
        place = find_block(tail, size) if len(tail) == size - start else None
        if place is None:
            raise CorruptObject(
                f"{key}: it is not a landed object: its {size} bytes have no facts block"
            )
        if place.position >= start:
            block = tail[place.position - start : place.end - start]
        else:
            block = await store.read(key, start=place.position, length=place.length)
    except ObjectNotFound:
        return None
    return block, size


class _ByBlock(WrappedStore):
    """A store whose read returns the facts block, which is enough to know whose object it is."""

    async def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        found = await _read_block(self._store, key)
        if found is None:
            raise ObjectNotFound(f"there is no object {key!r} in {self._store.url}")
        return found[0]
