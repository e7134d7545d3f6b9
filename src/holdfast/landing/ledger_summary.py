"""Summaries of whole blocks of ledger entries, so that naming all files needs few reads.

Owns their form. A summary is derived: it can be deleted and written again, and says nothing that
its entries do not say. It carries the hash before its first entry and the hash of its last, so that
a summary of other entries is recognised. Listing n entries takes n / 256 reads, and at most 256 for
the newest. Must never be needed for a decision: only the entries decide.
"""

import itertools
from collections.abc import Sequence

import msgspec

from holdfast.environment import Environment
from holdfast.errors import InvariantViolation, ObjectNotFound
from holdfast.landing.ledger_entry import Head, OutputFile, check_link
from holdfast.landing.sealed import seal, unseal
from holdfast.store.interface import Store
from holdfast.store.patience import patiently
from holdfast.store.put_if_absent import put_if_absent, same_bytes

KIND = "ledger-summary"
BLOCK = 256


class EntryFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The files that one entry made visible, and the paths that it replaced."""

    n: int
    files: tuple[OutputFile, ...]
    removed: tuple[str, ...]
    committed_ms: int


class LedgerSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The files of the 256 entries from block * 256 on."""

    sink_id: str
    block: int
    previous_hash: str
    last_hash: str
    entries: tuple[EntryFiles, ...]


def summary_key(sink_id: str, block: int) -> str:
    return f"ledger-summaries/{sink_id}/{block:020d}"


def files_of(head: Head) -> EntryFiles:
    entry = head.entry
    return EntryFiles(
        n=entry.n, files=entry.files, removed=entry.removed, committed_ms=entry.committed_ms
    )


def summary_of(sink_id: str, heads: Sequence[Head]) -> LedgerSummary:
    """Return the summary of one whole block. Its entries must follow one another."""
    first = heads[0].entry.n
    if len(heads) != BLOCK or first % BLOCK != 0:
        raise InvariantViolation(
            f"{len(heads)} ledger entries from {first} on are not a block of sink {sink_id}"
        )
    for before, after in itertools.pairwise(heads):
        check_link(before.hash, after)
    return LedgerSummary(
        sink_id=sink_id,
        block=first // BLOCK,
        previous_hash=heads[0].entry.previous_hash,
        last_hash=heads[-1].hash,
        entries=tuple(files_of(head) for head in heads),
    )


async def write_summary(
    store: Store, sink_id: str, heads: Sequence[Head], *, environment: Environment
) -> None:
    """Create the summary of a block. Equal bytes from another writer are just as good."""
    summary = summary_of(sink_id, heads)
    body = (seal(KIND, summary),)
    await put_if_absent(
        store,
        summary_key(sink_id, summary.block),
        body,
        is_ours=same_bytes(body),
        identify_bytes=None,
        environment=environment,
        deadline_seconds=10.0,
    )


async def read_summary(
    store: Store, sink_id: str, block: int, *, environment: Environment
) -> LedgerSummary | None:
    """Return the summary of a block, or None if none was written."""
    key = summary_key(sink_id, block)

    async def read() -> LedgerSummary | None:
        try:
            return unseal(KIND, LedgerSummary, await store.read(key), key=key)
        except ObjectNotFound:
            return None

    return await patiently(read, environment=environment)
