"""What the output of a pipeline must be, from what producers were told alone.

Owns the comparison. The checks are pure functions on what was acknowledged and what readers see;
they know nothing of ledgers, state or Spark. The reading goes through holdfast.landing.landed, as a
user's would: only files that a ledger names, only objects that a chain reaches.
"""

import asyncio
import itertools
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.environment import SystemEnvironment
from holdfast.landing import landed
from holdfast.landing.ledger import Ledger
from holdfast.landing.ledger_entry import Entry, LedgerEntryKind
from holdfast.store.read_only import open_read_only

SHOWN_MAX = 5

Acked = Mapping[tuple[int, int], tuple[str, int]]
"""Partition and offset of each record, with its id (or key) and which copy (or amount) it is."""


@dataclass(frozen=True, slots=True)
class Row:
    """A record as readers of the output see it."""

    partition: int
    offset: int
    identity: str
    copy: int


@dataclass(frozen=True, slots=True)
class Step:
    """One ledger entry: from where to where, for each partition, and how many rows it counted."""

    n: int
    start: Mapping[int, int] | None
    end: Mapping[int, int]
    rows: int | None
    is_rewrite: bool = False
    committed_ms: int = 0


def check_real(acked: Acked, rows: Iterable[Row]) -> list[str]:
    """Every row is a record that was produced, at the offset where it was acknowledged."""
    strange = [
        row for row in rows if acked.get((row.partition, row.offset)) != (row.identity, row.copy)
    ]
    return told("phantom", strange)


def check_ids(acked: Acked, rows: Iterable[Row]) -> list[str]:
    """Each id that was acknowledged is there exactly once."""
    seen = Counter(row.identity for row in rows)
    wanted = {identity for identity, _ in acked.values()}
    return [
        *told("lost", sorted(wanted - set(seen))),
        *told("doubled", sorted(identity for identity, count in seen.items() if count > 1)),
    ]


def check_records(acked: Acked, rows: Iterable[Row]) -> list[str]:
    """Each record that was acknowledged is there exactly once."""
    seen = Counter((row.partition, row.offset) for row in rows)
    return [
        *told("lost", sorted(set(acked) - set(seen))),
        *told("doubled", sorted(where for where, count in seen.items() if count > 1)),
    ]


def check_tiles(steps: Sequence[Step], ends: Mapping[int, int]) -> list[str]:
    """Each entry begins where the one before it ends, and the last ends where the log does."""
    problems: list[str] = []
    position: Mapping[int, int] = dict.fromkeys(ends, 0)
    for step in steps:
        if step.is_rewrite:
            continue
        start = step.start if step.start is not None else dict.fromkeys(ends, 0)
        if {**dict.fromkeys(ends, 0), **start} != position:
            problems.append(f"entry {step.n} begins at {start}; the one before ends at {position}")
        count = sum(offset - start.get(where, 0) for where, offset in step.end.items())
        if step.rows is not None and step.rows != count:
            problems.append(f"entry {step.n} spans {count} records and counted {step.rows} rows")
        position = {**dict.fromkeys(ends, 0), **step.end}
    if position != ends:
        problems.append(f"the ledger ends at {position}, the log at {dict(ends)}")
    return problems[:SHOWN_MAX]


def told(what: str, found: Sequence[object]) -> list[str]:
    """One line about all that has the same thing wrong with it."""
    if not found:
        return []
    shown = ", ".join(str(one) for one in found[:SHOWN_MAX])
    return [f"{what}: {len(found)}: {shown}"]


def read_entries(lake: Path, sink_id: str) -> list[Entry]:
    """The ledger, each entry checked against the one before it."""

    async def read() -> list[Entry]:
        environment = SystemEnvironment()
        store = open_read_only(str(lake), environment=environment)
        try:
            ledger = await Ledger.open(store, sink_id, environment=environment)
            return [entry async for entry in ledger.entries()]
        finally:
            await store.close()

    return asyncio.run(read())


def steps_of(entries: Iterable[Entry], topic: str) -> list[Step]:
    return [
        Step(
            n=entry.n,
            start=_positions(entry.sources[0].start, topic),
            end=_positions(entry.sources[0].end, topic) or {},
            rows=entry.counts.get("rows"),
            is_rewrite=entry.kind is LedgerEntryKind.REWRITE,
            committed_ms=entry.committed_ms,
        )
        for entry in entries
    ]


def _positions(text: str | None, topic: str) -> dict[int, int] | None:
    if text is None:
        return None
    partitions = json.loads(text)["topics"].get(topic, {"partitions": {}})["partitions"]
    return {int(partition): int(offset) for partition, offset in partitions.items()}


def read_columns(lake: Path, sink_id: str, columns: list[str]) -> Iterator[pa.Table]:
    """The files that the ledger names."""

    async def paths() -> list[tuple[str, int]]:
        environment = SystemEnvironment()
        store = open_read_only(str(lake), environment=environment)
        try:
            found = await landed.files(store, sink_id, environment=environment, role=None)
            return [(file.path, file.rows) for file in found]
        finally:
            await store.close()

    for path, count in asyncio.run(paths()):
        table = pq.read_table(lake / path, columns=columns)
        if table.num_rows != count:
            raise AssertionError(f"{path} has {table.num_rows} rows; the ledger says {count}")
        yield table


def read_rows(lake: Path, sink_id: str) -> list[Row]:
    """The rows of a sink that lets records through."""
    tables = read_columns(lake, sink_id, ["partition", "offset", "value"])
    return [row for table in tables for row in _rows(table.to_pydict())]


def read_chain_rows(lake: Path, topic: str) -> list[Row]:
    """The records of the objects that chains reach, in the order of each log."""

    async def read() -> list[Row]:
        environment = SystemEnvironment()
        store = open_read_only(str(lake), environment=environment)
        rows: list[Row] = []
        try:
            async for batch in landed.records(store, environment=environment, topic=topic):
                rows += _rows(batch.to_pydict())
        finally:
            await store.close()
        return rows

    return asyncio.run(read())


def _rows(columns: Mapping[str, Sequence[Any]]) -> list[Row]:
    found: list[Row] = []
    for partition, offset, value in zip(
        columns["partition"], columns["offset"], columns["value"], strict=True
    ):
        record = json.loads(value)
        found.append(Row(int(str(partition)), int(str(offset)), record["id"], record["copy"]))
    return found


def check_order(rows: Iterable[Row]) -> list[str]:
    """Records of a partition stand in the order of its log."""
    newest: dict[int, int] = {}
    wrong: list[Row] = []
    for row in rows:
        if row.offset <= newest.get(row.partition, -1):
            wrong.append(row)
        newest[row.partition] = row.offset
    return told("out of order", wrong)


def verify_landed(lake: Path) -> list[str]:
    """What `holdfast landed --verify` says of every byte."""
    holdfast = Path(sys.executable).parent / "holdfast"
    answer = subprocess.run(
        [str(holdfast), "landed", str(lake), "--verify", "--json"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if answer.returncode == 0:
        return []
    return [f"landed --verify: {answer.stdout} {answer.stderr}"[:2000]]


def check_sink(lake: Path, sink_id: str, topic: str, acked: Acked, *, by_id: bool) -> list[str]:
    """All that a ledgered sink promises."""
    rows = read_rows(lake, sink_id)
    entries = read_entries(lake, sink_id)
    problems = check_real(acked, rows)
    problems += check_ids(acked, rows) if by_id else check_records(acked, rows)
    if by_id and entries:
        ids = len({identity for identity, _ in acked.values()})
        remembered = entries[-1].counts.get("state_rows")
        if remembered != ids:
            problems.append(f"the state remembers {remembered} ids of {ids}")
    return problems + check_ledger(lake, entries, topic, acked)


def check_ledger(lake: Path, entries: list[Entry], topic: str, acked: Acked) -> list[str]:
    """What every ledgered sink promises, whatever it does with its rows."""
    ends: dict[int, int] = {}
    for partition, offset in acked:
        ends[partition] = max(ends.get(partition, 0), offset + 1)
    problems = check_tiles(steps_of(entries, topic), ends)
    for before, after in itertools.pairwise(entries):
        if after.n != before.n + 1:
            problems.append(f"entry {after.n} follows entry {before.n}")
    return problems + verify_landed(lake)


def check_chain(lake: Path, topic: str, acked: Acked) -> list[str]:
    """All that landing chains promise."""
    rows = read_chain_rows(lake, topic)
    return [
        *check_real(acked, rows),
        *check_records(acked, rows),
        *check_order(rows),
        *verify_landed(lake),
    ]
