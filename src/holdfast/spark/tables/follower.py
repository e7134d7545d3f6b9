"""Carries ledger entries over to a table, in order, each exactly once.

Owns what is carried next. The ledger is the commit. A table follows it under (sink id, n), and each
commit of the table holds the files and the number together. So the table itself says what it has,
after a crash at any point and beside other drivers. A table commit that lost to another writer is
never simply tried again: the table is looked at first. Must never trust a number that was kept in
memory, except to skip a look.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.columnar.arrow import pa
from holdfast.errors import ConfigurationError, CorruptObject, RetryError, StopError
from holdfast.landing.data_files import number_of
from holdfast.landing.followers import mark, marks
from holdfast.landing.landed import committed_files
from holdfast.landing.ledger import Ledger, read_entry
from holdfast.landing.ledger_entry import Entry, FileRole, LedgerEntryKind, OutputFile
from holdfast.landing.output_files import read_footer
from holdfast.landing.parallel import each
from holdfast.landing.partition_columns import partition_fields
from holdfast.spark.ledger.job import Output
from holdfast.spark.runtime.worker import worker

LOGGER = logging.getLogger("holdfast.spark.tables")

LOST_MAX = 10
"""How many commits in a row may lose to other writers before an error is raised."""
ENTRIES_AT_ONCE = 100
FILES_AT_ONCE = 1000
"""With ENTRIES_AT_ONCE: how much one table commit takes over if the table is far behind."""
EXTENSION = ".parquet"


class TableRefused(StopError):
    """The table cannot take what the ledger holds; the message names the remedy."""


class TableUnavailable(RetryError):
    """The table, or its catalog, does not answer; what is committed waits in the ledger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    """A file to add, with what its footer says."""

    file: OutputFile
    footer: Any
    schema: Any
    """The columns of the file, followed by those of its path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one commit of the table does."""

    sink_id: str
    n: int
    """The newest entry that the table holds after this commit."""
    added: tuple[NewFile, ...]
    removed: tuple[OutputFile, ...]
    is_rewrite: bool
    """True if the rows stay as they are."""
    committed_ms: int


class Table(Protocol):
    """A table that has the files of one sink."""

    @property
    def name(self) -> str:
        """The name of the table among the followers of the sink; it never changes."""
        ...

    @property
    def where(self) -> str:
        """The name of the table in messages."""
        ...

    def position(self) -> int | None:
        """Return the newest entry that the table holds, as it says now; None if it has none."""
        ...

    def publish(self, change: Change) -> bool:
        """Commit files and number together, only on top of what the last `position` saw.

        Returns False if another writer came first. Raises TableRefused if the columns do not fit.
        """
        ...

    def partition_columns(self) -> list[str] | None:
        """Return the partition columns that `position` saw last; None if there was no table."""
        ...


class TableFollower(ABC):
    """The base of DeltaTable and IcebergTable: a table that follows the ledger of a sink.

    A LedgerSink calls `catch_up` after each micro-batch; see spark.ledger_sink.Follower.
    """

    def __init__(self) -> None:
        self._table: Table | None = None
        self._carried: int | None = None

    @abstractmethod
    def bind(self, store_url: str, sink_id: str) -> Table:
        """Return the table for a sink."""

    @abstractmethod
    def look(self, store_url: str, sink_id: str) -> Table | None:
        """Return the table for a sink without creating anything; None if it does not exist."""

    def check(self, output: Output) -> None:
        """Raise an error if the table cannot follow this output. Reads only."""
        table = self.look(output.store, output.sink_id)
        if table is None:
            return
        table.position()
        columns = table.partition_columns()
        if columns is not None and {*columns} != {*output.partition_by}:
            raise ConfigurationError(
                f"{table.where} is partitioned by {_listed(columns)}, and partition_by is"
                f" {_listed(output.partition_by)}: set partition_by to the columns of the table,"
                " or choose a new sink_id and a table of its own"
            )

    def catch_up(self, ledger: Ledger) -> None:
        """Carry over all entries that the table does not hold. Calling it again does no harm."""
        head = ledger.head
        if head is None or self._carried == head.n:
            return
        if self._table is None:
            self._table = self._begin(ledger)
        table, lost = self._table, 0
        while lost < LOST_MAX:
            at = table.position()
            _check_not_ahead(ledger, at, table)
            change = worker().run(next_change(ledger, at))
            if change is None:
                if self._carried is None:
                    _mark(ledger, table, ledger.next_number)
                self._carried = ledger.next_number - 1
                return
            if not table.publish(change):
                lost += 1
                continue
            lost = 0
            LOGGER.info(
                "table_follows table=%s sink=%s n=%d", table.where, change.sink_id, change.n
            )
            if change.is_rewrite:
                _mark(ledger, table, change.n + 1)
        raise TableUnavailable(
            f"{table.where}: other writers came first {LOST_MAX} times in a row; the entries of"
            f" sink {ledger.sink_id} stay in its ledger: start again when the table is less busy"
        )

    def _begin(self, ledger: Ledger) -> Table:
        """Note in the store that this table follows, before it names a file: sweeps wait for it."""
        table = self.bind(ledger.store.url, ledger.sink_id)
        known = worker().run(marks(ledger.store, ledger.sink_id, environment=ledger.environment))
        if table.name not in known:
            _mark(ledger, table, 0)
        return table


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(columns) or "no column"


def catch_up(store: str, sink_id: str, *followers: TableFollower) -> int:
    """Bring tables up to date with the output of a pipeline, without running the pipeline.

    `store` and `sink_id` name the output. `followers` are DeltaTable() or IcebergTable(...).
    Returns the number of entries in the ledger.
    """
    here = worker()
    ledger = here.run(Ledger.open(here.writable(store), sink_id, environment=here.environment))
    for follower in followers:
        follower.catch_up(ledger)
    return ledger.next_number


def _mark(ledger: Ledger, table: Table, entries: int) -> None:
    worker().run(
        mark(
            ledger.store,
            ledger.sink_id,
            table.name,
            entries,
            environment=ledger.environment,
            where=table.where,
        )
    )


def _check_not_ahead(ledger: Ledger, at: int | None, table: Table) -> None:
    if at is None or at < ledger.next_number:
        return
    worker().run(ledger.refresh())
    if at >= ledger.next_number:
        raise TableRefused(
            f"{table.where} holds entry {at} of sink {ledger.sink_id}, and the ledger in"
            f" {ledger.store.url} ends at {ledger.next_number - 1}: the ledger was restored from an"
            " old copy, or a sink of the same id in another store writes to this table; restore the"
            " ledger, or give this pipeline a sink id and a table of its own"
        )


async def next_change(ledger: Ledger, at: int | None) -> Change | None:
    """Return what the table lacks next; None if it has all rows of the entries seen so far."""
    if at is None:
        return await _whole(ledger)
    held: list[Entry] = []
    for entry in await _entries_after(ledger, at):
        if entry.kind is LedgerEntryKind.REWRITE:
            if held:
                break
            change = await _rewrite(ledger, entry)
            if change is not None:
                return change
        elif _rows_of(entry.files):
            held.append(entry)
            files = sum(len(one.files) for one in held)
            if len(held) >= ENTRIES_AT_ONCE or files >= FILES_AT_ONCE:
                break
    if not held:
        return None
    files = [file for entry in held for file in _rows_of(entry.files)]
    return await _change(ledger, held[-1], files, removed=(), is_rewrite=False)


async def _entries_after(ledger: Ledger, at: int) -> list[Entry]:
    head = ledger.head
    if head is not None and head.n == at + 1:
        return [head]
    found: list[Entry] = []
    async for entry in ledger.entries(at + 1):
        found.append(entry)
        if len(found) >= FILES_AT_ONCE and any(_rows_of(one.files) for one in found):
            break
    return found


async def _whole(ledger: Ledger) -> Change | None:
    """Return the first change of a new table: all files that count now.

    Files that were replaced may be deleted already, so the entries cannot be carried over one by
    one.
    """
    await ledger.refresh()
    committed = await committed_files(ledger.store, ledger.sink_id, environment=ledger.environment)
    await ledger.refresh()
    files = _rows_of(committed.files)
    if not files:
        return None
    last = await read_entry(
        ledger.store, ledger.sink_id, committed.entries - 1, environment=ledger.environment
    )
    if last is None:
        raise CorruptObject(f"entry {committed.entries - 1} of sink {ledger.sink_id} is gone")
    return await _change(ledger, last.entry, files, removed=(), is_rewrite=False)


async def _rewrite(ledger: Ledger, entry: Entry) -> Change | None:
    """Return the change of an entry that replaced files; None if no rows are in them.

    The path of a replaced file says which entry committed it, and that entry says its role.
    """
    numbers = sorted({_number(path, entry) for path in entry.removed})

    async def files_of(n: int) -> tuple[OutputFile, ...]:
        found = await read_entry(ledger.store, ledger.sink_id, n, environment=ledger.environment)
        return () if found is None else found.entry.files

    known = {file.path: file for files in await each(files_of, numbers) for file in files}
    missing = [path for path in entry.removed if path not in known]
    if missing:
        raise CorruptObject(
            f"entry {entry.n} of sink {entry.sink_id} replaces {missing[0]}, which no entry names"
        )
    removed = _rows_of(known[path] for path in entry.removed)
    added = _rows_of(entry.files)
    if not removed and not added:
        return None
    return await _change(ledger, entry, added, removed=removed, is_rewrite=True)


def _number(path: str, entry: Entry) -> int:
    n = number_of(path, entry.sink_id)
    if n is None:
        raise CorruptObject(f"entry {entry.n} of sink {entry.sink_id} replaces {path}")
    return n


async def _change(
    ledger: Ledger,
    entry: Entry,
    files: Sequence[OutputFile],
    *,
    removed: Sequence[OutputFile],
    is_rewrite: bool,
) -> Change:
    async def opened(file: OutputFile) -> NewFile:
        footer = await read_footer(ledger.store, file, environment=ledger.environment)
        return NewFile(file=file, footer=footer, schema=_schema(file, footer))

    for file in files:
        if not file.path.endswith(EXTENSION):
            raise ConfigurationError(
                f"{file.path}: a table needs Parquet files, and sink {ledger.sink_id} writes"
                ' another format: use format="parquet" and a new sink id'
            )
    return Change(
        sink_id=ledger.sink_id,
        n=entry.n,
        added=tuple(await each(opened, files)),
        removed=tuple(removed),
        is_rewrite=is_rewrite,
        committed_ms=entry.committed_ms,
    )


def _rows_of(files: Iterable[OutputFile]) -> tuple[OutputFile, ...]:
    return tuple(file for file in files if file.role is FileRole.ROWS)


def _schema(file: OutputFile, footer: Any) -> Any:
    inside = footer.schema.to_arrow_schema().remove_metadata()
    apart = partition_fields([*file.partition_values], footer.metadata, path=file.path)
    doubled = [field.name for field in apart if field.name in inside.names]
    if doubled:
        raise TableRefused(f"{file.path}: the column {doubled[0]!r} is in the file and in its path")
    return pa.schema([pa.field(field.name, field.type) for field in [*inside, *apart]])
