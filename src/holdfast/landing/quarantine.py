"""Record batches that cannot be read, kept whole beside the output of a Spark job.

Owns their place and shape: one JSON object for each batch, under `_unreadable/`, with topic,
partition, offsets, reason and the batch as the log has it, in base64. The name and the bytes must
never depend on anything but the batch, so that a task that runs again finds what it wrote before.
"""

import base64
from uuid import UUID

import msgspec

from holdfast.columnar.unreadable import Unreadable
from holdfast.environment import Environment
from holdfast.errors import NOT_JSON, CorruptObject, StoreUnavailable
from holdfast.json_bytes import base64_text
from holdfast.store.interface import CreateAnswer, Store
from holdfast.store.patience import patiently

QUARANTINE_PREFIX = "_unreadable/"
"""Folder of quarantined batches. Spark and pyarrow skip names that begin with `_`."""


class QuarantinedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The content of one object under `_unreadable/`."""

    topic: str
    topic_id: UUID | None
    partition: int
    first_offset: int
    last_offset: int
    reason: str
    batch_base64: str

    @property
    def batch(self) -> bytes:
        return base64.b64decode(self.batch_base64)


def quarantine_key(topic: str, partition: int, found: Unreadable) -> str:
    """Return the key for a batch.

    The checksum in it separates batches of a topic from those of an earlier topic with the same
    name.
    """
    name = f"{found.base_offset:020d}-{found.header.crc:08x}.json"
    return f"{QUARANTINE_PREFIX}{topic}/{partition}/{name}"


async def quarantine(
    store: Store,
    found: Unreadable,
    *,
    topic: str,
    topic_id: UUID | None,
    partition: int,
    environment: Environment,
    give_up_after_s: float | None = None,
) -> None:
    """Store a batch; safe to repeat."""
    kept = QuarantinedBatch(
        topic=topic,
        topic_id=topic_id,
        partition=partition,
        first_offset=found.base_offset,
        last_offset=found.last_offset,
        reason=found.problem,
        batch_base64=base64_text(found.batch),
    )
    key, body = quarantine_key(topic, partition, found), msgspec.json.encode(kept)

    async def create() -> None:
        if await store.create(key, [body]) is CreateAnswer.CONFLICT:
            raise StoreUnavailable(f"{key}: another writer is creating it; try again")

    await patiently(create, environment=environment, give_up_after_s=give_up_after_s)


async def read_quarantined(store: Store, key: str, *, environment: Environment) -> QuarantinedBatch:
    """Return the content of an object under `_unreadable/`."""
    body = await patiently(lambda: store.read(key), environment=environment)
    try:
        return msgspec.json.decode(body, type=QuarantinedBatch)
    except NOT_JSON as error:
        raise CorruptObject(f"{key}: {error}") from error
