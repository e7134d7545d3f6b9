"""The origin of a chain: one small object that all writers of a partition agree on first.

Owns the document and its creation. Without it, two writers of an empty chain that start at
different offsets (retention moved the log start between them) would build two chains that overlap.
And a missing first object would look like a chain that began later. The first writer decides, by
put-if-absent, and the others adopt its origin. Must never be changed.
"""

import msgspec

from holdfast.environment import Environment
from holdfast.errors import ConfigurationError, ObjectNotFound
from holdfast.landing.keys import KeyTemplate
from holdfast.landing.sealed import seal, unseal
from holdfast.store.interface import Store
from holdfast.store.patience import patiently
from holdfast.store.put_if_absent import Lost, put_if_absent

KIND = "chain"


class ChainOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of one chain, fixed for ever."""

    topic: str
    partition: int
    offset: int
    """The first offset that the chain covers."""
    format: str
    """The format of the first writer. Each object says its own."""
    extension: str
    template: str
    writer_id: str
    created_ms: int


async def read_origin(store: Store, key: str, *, environment: Environment) -> ChainOrigin | None:
    """Return the origin at a key, or None if no chain has begun there."""

    async def read() -> ChainOrigin | None:
        try:
            return unseal(KIND, ChainOrigin, await store.read(key), key=key)
        except ObjectNotFound:
            return None

    return await patiently(read, environment=environment)


async def agree_on_origin(
    store: Store,
    wanted: ChainOrigin,
    *,
    environment: Environment,
    deadline_seconds: float | None = None,
) -> ChainOrigin:
    """Return the origin of the chain: ours if we are first, otherwise the existing one.

    Another extension or template would mean other keys, and so a second chain: that is refused. A
    layout may change from object to object, because each object says its own.
    """
    key = KeyTemplate(wanted.template).origin_key(wanted.topic, wanted.partition)
    origin = await read_origin(store, key, environment=environment)
    if origin is None:
        body = seal(KIND, wanted)

        def is_ours(found: bytes) -> bool:
            unseal(KIND, ChainOrigin, found, key=key)
            return found == body

        outcome = await put_if_absent(
            store,
            key,
            (body,),
            is_ours=is_ours,
            identify_bytes=None,
            environment=environment,
            deadline_seconds=deadline_seconds,
        )
        lost = isinstance(outcome, Lost)
        origin = unseal(KIND, ChainOrigin, outcome.body, key=key) if lost else wanted
    for what in ("topic", "partition", "extension", "template"):
        theirs, ours = getattr(origin, what), getattr(wanted, what)
        if theirs != ours:
            raise ConfigurationError(
                f"{key} in {store.url}: this chain has the {what} {theirs!r}, which cannot become"
                f" {ours!r}: go back to {theirs!r}, or land under another prefix"
            )
    return origin
