"""Reading back what has landed: the records of chains, the files that ledgers name.

Owns what counts: an object that a chain reaches from its origin, a file that the newest entries
name. Must never give out anything else, whatever lies beside it in the store.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from holdfast.environment import Environment
from holdfast.errors import CorruptObject, ObjectNotFound
from holdfast.landing.arrow import RecordBatch
from holdfast.landing.facts import Facts
from holdfast.landing.formats.known import format_named
from holdfast.landing.keys import ORIGIN_NAME, KeyTemplate
from holdfast.landing.ledger import Ledger, read_entry
from holdfast.landing.ledger_entry import OutputFile, check_link
from holdfast.landing.ledger_summary import BLOCK, EntryFiles, files_of, read_summary
from holdfast.landing.objects import read_facts, read_proved
from holdfast.landing.origin import Origin, read_origin
from holdfast.store.interface import Store
from holdfast.store.patience import patiently


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedFiles:
    """What a ledger makes visible now."""

    files: tuple[OutputFile, ...]
    replaced: tuple[OutputFile, ...]
    entries: int
    replaced_ms: dict[str, int] = field(default_factory=dict[str, int])
    """When each replaced path stopped counting."""


async def committed_files(
    store: Store, sink_id: str, *, environment: Environment
) -> CommittedFiles:
    """Exactly the files that the ledger names and has not replaced: n / 256 + 256 reads at most."""
    ledger = await Ledger.open(store, sink_id, environment=environment)
    files: dict[str, OutputFile] = {}
    replaced: dict[str, OutputFile] = {}
    replaced_ms: dict[str, int] = {}
    async for entry in _entries(store, ledger, environment):
        for path in entry.removed:
            gone = files.pop(path, None)
            if gone is None:
                raise CorruptObject(
                    f"entry {entry.n} of sink {sink_id} replaces {path}, which no entry committed"
                )
            replaced[path] = gone
            replaced_ms[path] = entry.committed_ms
        for file in entry.files:
            files[file.path] = file
    return CommittedFiles(
        files=tuple(files.values()),
        replaced=tuple(replaced.values()),
        entries=ledger.next_number,
        replaced_ms=replaced_ms,
    )


async def files(store: Store, sink_id: str, *, environment: Environment) -> tuple[OutputFile, ...]:
    """The committed files of a sink, for readers."""
    return (await committed_files(store, sink_id, environment=environment)).files


async def objects(
    store: Store, *, environment: Environment, topic: str | None = None
) -> list[tuple[str, Facts]]:
    """The key and the facts of all objects that chains reach, in the order of each log."""
    rows = await patiently(lambda: store.list(""), environment=environment)
    found: list[tuple[str, Facts]] = []
    for row in rows:
        if not is_origin_key(row.key):
            continue
        origin = await read_origin(store, row.key, environment=environment)
        if origin is not None and topic in (None, origin.topic):
            async for key, facts in walk(store, origin, environment):
                found.append((key, facts))
    return found


async def records(
    store: Store, *, environment: Environment, topic: str | None = None
) -> AsyncIterator[RecordBatch]:
    """All landed records, each object proved before it is read."""
    for key, _ in await objects(store, environment=environment, topic=topic):
        for batch in await read_object(store, key, environment=environment):
            yield batch


async def read_object(store: Store, key: str, *, environment: Environment) -> list[RecordBatch]:
    """The records of one landed object, every byte checked."""
    facts, body = await read_proved(store, key, environment=environment)
    return list(format_named(facts.format).decode(body, facts))


async def _entries(
    store: Store, ledger: Ledger, environment: Environment
) -> AsyncIterator[EntryFiles]:
    """The files of all entries in order, from summaries where there are any."""
    n = 0
    before_hash: str | None = None
    before = None
    while n < ledger.next_number:
        if n % BLOCK == 0 and n + BLOCK <= ledger.next_number:
            summary = await read_summary(store, ledger.sink_id, n // BLOCK, environment=environment)
            fits = summary is not None and before_hash in (None, summary.previous_hash)
            if summary is not None and fits:
                for entry in summary.entries:
                    yield entry
                n += BLOCK
                before, before_hash = None, summary.last_hash
                continue
        found = await read_entry(store, ledger.sink_id, n, environment=environment)
        if found is None:
            raise ObjectNotFound(f"entry {n} of sink {ledger.sink_id} is gone from {store.url}")
        if before is not None or n == 0:
            check_link(before, found)
        elif before_hash is not None and found.entry.previous_hash != before_hash:
            raise CorruptObject(
                f"entry {n} of sink {ledger.sink_id} does not follow on the summary before it"
            )
        yield files_of(found)
        before, before_hash = found, found.hash
        n += 1


async def walk(
    store: Store, origin: Origin, environment: Environment
) -> AsyncIterator[tuple[str, Facts]]:
    template = KeyTemplate(origin.template)
    position = origin.offset
    while True:
        key = template.key(origin.topic, origin.partition, position, origin.extension)
        facts = await read_facts(store, key, environment=environment)
        if facts is None:
            return
        yield key, facts
        position = facts.next_offset


def is_origin_key(key: str) -> bool:
    name = key.rsplit("/", 1)[-1]
    return name.startswith("_") and name.endswith(ORIGIN_NAME)
