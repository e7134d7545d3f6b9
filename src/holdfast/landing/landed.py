"""Reading back what has landed: the records of chains and the files that ledgers name.

Owns what counts: an object that a chain reaches from its origin, and a file that the ledger names
and has not replaced. Must never return any other object or file of the store.
"""

from collections.abc import AsyncIterator, Set
from dataclasses import dataclass, field
from functools import partial

from holdfast.columnar.arrow import RecordBatch
from holdfast.environment import Environment
from holdfast.errors import CorruptObject, ObjectNotFound
from holdfast.landing.facts import Facts
from holdfast.landing.formats.known import format_named
from holdfast.landing.keys import ORIGIN_NAME, KeyTemplate, offset_in
from holdfast.landing.ledger import Ledger, read_entry
from holdfast.landing.ledger_entry import NO_HASH, FileRole, OutputFile, check_link, entry_key
from holdfast.landing.ledger_summary import BLOCK, EntryFiles, files_of, read_summary
from holdfast.landing.objects import read_facts, read_proved
from holdfast.landing.origin import ChainOrigin, read_origin
from holdfast.landing.parallel import each
from holdfast.store.interface import Store
from holdfast.store.patience import patiently

DEAD_PREFIX = "_dead/"
"""The beginning of the templates of dead letters. Spark and pyarrow skip such folders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedFiles:
    """The files that a ledger makes visible now, and those that it has replaced."""

    files: tuple[OutputFile, ...]
    replaced: tuple[OutputFile, ...]
    entries: int
    replaced_ms: dict[str, int] = field(default_factory=dict[str, int])
    """The time at which each replaced path stopped counting."""
    replaced_by: dict[str, int] = field(default_factory=dict[str, int])
    """The entry that replaced each path."""


async def committed_files(
    store: Store, sink_id: str, *, environment: Environment
) -> CommittedFiles:
    """Return the files that the ledger names and has not replaced.

    Takes at most n / 256 + 256 reads.
    """
    ledger = await Ledger.open(store, sink_id, environment=environment)
    files: dict[str, OutputFile] = {}
    replaced: dict[str, OutputFile] = {}
    replaced_ms: dict[str, int] = {}
    replaced_by: dict[str, int] = {}
    async for entry in _entries(store, ledger, environment):
        for path in entry.removed:
            gone = files.pop(path, None)
            if gone is None:
                raise CorruptObject(
                    f"ledger entry {entry.n} of sink {sink_id} replaces the file {path}, but no"
                    " earlier entry committed it"
                )
            replaced[path] = gone
            replaced_ms[path] = entry.committed_ms
            replaced_by[path] = entry.n
        for file in entry.files:
            files[file.path] = file
    return CommittedFiles(
        files=tuple(files.values()),
        replaced=tuple(replaced.values()),
        entries=ledger.next_number,
        replaced_ms=replaced_ms,
        replaced_by=replaced_by,
    )


async def files(
    store: Store,
    sink_id: str,
    *,
    environment: Environment,
    role: FileRole | None = FileRole.ROWS,
) -> tuple[OutputFile, ...]:
    """Return the committed files of a sink. If `role` is None, those of every role."""
    found = await committed_files(store, sink_id, environment=environment)
    return tuple(file for file in found.files if role in (None, file.role))


async def objects(
    store: Store, *, environment: Environment, topic: str | None = None, dead: bool = False
) -> list[tuple[str, Facts]]:
    """Return key and facts of all listed objects that chains reach, in the order of each log.

    With `dead` these are the chains of dead letters, otherwise the main chains. Raises
    CorruptObject if a chain has a hole, so that a part is never taken for the whole.
    """
    rows = await patiently(lambda: store.list(""), environment=environment)
    listed = {row.key for row in rows}
    found: list[tuple[str, Facts]] = []
    for row in rows:
        if not is_origin_key(row.key):
            continue
        origin = await read_origin(store, row.key, environment=environment)
        if origin is not None and topic in (None, origin.topic) and is_dead(origin) == dead:
            found.extend(await _reached(store, origin, listed, environment))
    return found


async def records(
    store: Store, *, environment: Environment, topic: str | None = None, dead: bool = False
) -> AsyncIterator[RecordBatch]:
    """Yield all landed records, or all dead letters. Each object is proved before it is read."""
    for key, _ in await objects(store, environment=environment, topic=topic, dead=dead):
        for batch in await read_object(store, key, environment=environment):
            yield batch


async def read_object(store: Store, key: str, *, environment: Environment) -> list[RecordBatch]:
    """Return the records of one landed object, with every byte checked."""
    facts, body = await read_proved(store, key, environment=environment)
    return list(format_named(facts.format).decode(body, facts))


async def _entries(
    store: Store, ledger: Ledger, environment: Environment
) -> AsyncIterator[EntryFiles]:
    """Yield the files of all entries in order: whole blocks from summaries, if there are any."""
    sink_id = ledger.sink_id
    before = NO_HASH
    summaries = await each(
        partial(read_summary, store, sink_id, environment=environment),
        range(ledger.next_number // BLOCK),
    )
    for start in range(0, ledger.next_number, BLOCK):
        block = start // BLOCK
        summary = summaries[block] if block < len(summaries) else None
        if summary is not None and summary.previous_hash == before:
            for entry in summary.entries:
                yield entry
            before = summary.last_hash
            continue
        numbers = range(start, min(start + BLOCK, ledger.next_number))
        read = partial(read_entry, store, sink_id, environment=environment)
        for n, found in zip(numbers, await each(read, numbers), strict=True):
            if found is None:
                raise ObjectNotFound(
                    f"the ledger entry {entry_key(sink_id, n)} is missing in {store.url}: restore"
                    " it"
                )
            check_link(before, found)
            yield files_of(found)
            before = found.hash
    if ledger.head_hash != before:
        raise CorruptObject(
            f"a summary of the ledger of sink {sink_id} does not match its entries: delete"
            f" ledger-summaries/{sink_id}/ (summaries are only a cache), and try again"
        )


async def _reached(
    store: Store, origin: ChainOrigin, listed: Set[str], environment: Environment
) -> list[tuple[str, Facts]]:
    """Walk one chain over the facts of its listed objects, which are read in parallel."""
    template = KeyTemplate(origin.template)
    prefix = template.prefix(origin.topic, origin.partition)
    keys = {
        offset: key
        for key in listed
        if (offset := offset_in(key, prefix, origin.extension)) is not None
    }
    read = partial(read_facts, store, environment=environment)
    known = dict(zip(keys, await each(read, keys.values()), strict=True))
    position = origin.offset
    found: list[tuple[str, Facts]] = []
    while (facts := known.get(position)) is not None:
        found.append((keys[position], facts))
        position = facts.next_offset
    beyond = min((offset for offset in keys if offset >= position), default=None)
    if beyond is not None:
        raise CorruptObject(
            f"{origin.topic}-{origin.partition} in {store.url}: offsets {position} to"
            f" {beyond - 1} are missing before {keys[beyond]}; run `holdfast landed` for details"
        )
    return found


def is_dead(origin: ChainOrigin) -> bool:
    """True if a chain is one of dead letters."""
    return origin.template.startswith(DEAD_PREFIX)


def is_origin_key(key: str) -> bool:
    name = key.rsplit("/", 1)[-1]
    return name.startswith("_") and name.endswith(ORIGIN_NAME)
