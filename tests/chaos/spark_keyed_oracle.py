"""What running totals and timers must be, from what producers were told alone.

Owns the comparison for state that is kept by key. As in tests.chaos.spark_oracle the checks are
pure, and the ledger says only which records a micro-batch had and when it was committed. Must never
share code with the aggregates and timers that it judges.
"""

import bisect
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.spark_oracle import (
    Acked,
    Step,
    check_ledger,
    read_columns,
    read_entries,
    steps_of,
    told,
)

CLOCK_MS = 20
"""How far two looks at the wall clock of one machine may be apart in the wrong order."""


@dataclass(frozen=True, slots=True)
class Total:
    """A row of running totals."""

    key: str
    records: int
    total: int
    n: int


@dataclass(frozen=True, slots=True)
class Fired:
    """A row of a timer."""

    key: str
    deadline_ms: int
    n: int


def placed(acked: Acked, steps: Sequence[Step]) -> dict[tuple[int, int], int]:
    """The entry that each record was read in; those after the last end are in none."""
    found: dict[tuple[int, int], int] = {}
    for partition in {partition for partition, _ in acked}:
        ends = list(itertools.accumulate((step.end.get(partition, 0) for step in steps), max))
        for where in acked:
            if where[0] == partition and (i := bisect.bisect_right(ends, where[1])) < len(ends):
                found[where] = steps[i].n
    return found


def check_totals(acked: Acked, rows: Iterable[Total]) -> list[str]:
    """The newest row of each key has each of its records once."""
    wanted: dict[str, tuple[int, int]] = {}
    for key, amount in acked.values():
        records, total = wanted.get(key, (0, 0))
        wanted[key] = (records + 1, total + amount)
    newest: dict[str, tuple[int, int]] = {}
    for row in sorted(rows, key=lambda row: row.n):
        newest[row.key] = (row.records, row.total)
    shared = sorted(wanted.keys() & newest.keys())
    wrong = [
        f"{key} {newest[key]} of {wanted[key]}" for key in shared if newest[key] != wanted[key]
    ]
    return [
        *told("lost", sorted(wanted.keys() - newest.keys())),
        *told("phantom", sorted(newest.keys() - wanted.keys())),
        *told("wrong total", wrong),
    ]


def check_versions(acked: Acked, steps: Sequence[Step], rows: Iterable[Total]) -> list[str]:
    """Each entry has one row for each key that it read, with all that was read of it so far."""
    read_in = placed(acked, steps)
    by_entry: dict[int, list[tuple[str, int]]] = {}
    for where, n in read_in.items():
        by_entry.setdefault(n, []).append(acked[where])
    seen: dict[tuple[int, str], list[Total]] = {}
    newest: dict[str, Total] = {}
    back: list[Total] = []
    for row in sorted(rows, key=lambda row: row.n):
        seen.setdefault((row.n, row.key), []).append(row)
        if row.key in newest and row.records <= newest[row.key].records:
            back.append(row)
        newest[row.key] = row
    wanted: dict[tuple[int, str], Total] = {}
    so_far: dict[str, tuple[int, int]] = {}
    for n in sorted(by_entry):
        for key, amount in by_entry[n]:
            records, total = so_far.get(key, (0, 0))
            so_far[key] = (records + 1, total + amount)
            wanted[n, key] = Total(key, *so_far[key], n)
    wrong = [row for at, found in seen.items() for row in found if wanted.get(at) != row]
    return [
        *told("a version is missing", sorted(wanted.keys() - seen.keys())),
        *told("doubled", sorted(at for at, found in seen.items() if len(found) > 1)),
        *told("a version goes back", back),
        *told("a version is wrong", wrong),
    ]


def check_timers(
    acked: Acked,
    times_ms: Mapping[tuple[int, int], int],
    steps: Sequence[Step],
    fired: Iterable[Fired],
    *,
    after_ms: int,
) -> list[str]:
    """Each silence of a key that was long enough fires once, and nothing else does."""
    latest: dict[str, dict[int, int]] = {}
    for where, n in placed(acked, steps).items():
        of_key = latest.setdefault(acked[where][0], {})
        of_key[n] = max(of_key.get(n, 0), times_ms[where])
    rows: dict[str, list[Fired]] = {}
    for row in sorted(fired, key=lambda row: row.n):
        rows.setdefault(row.key, []).append(row)
    clock = {step.n: step.committed_ms for step in steps}
    problems: dict[str, list[object]] = {}
    for key in sorted(latest.keys() | rows.keys()):
        silences = _silences(latest.get(key, {}))
        for what, row in _misfired(key, silences, rows.get(key, []), clock, after_ms):
            problems.setdefault(what, []).append(row)
    return [line for what, found in problems.items() for line in told(what, found)]


@dataclass(frozen=True, slots=True)
class Silence:
    """From an entry with a record of a key to the next one that has; the last has no end."""

    since: int
    record_ms: int
    until: int | None


def _silences(latest: Mapping[int, int]) -> list[Silence]:
    numbers: list[int | None] = [*sorted(latest), None]
    return [
        Silence(since, latest[since], until)
        for since, until in itertools.pairwise(numbers)
        if since is not None
    ]


def _misfired(
    key: str,
    silences: Sequence[Silence],
    fired: Sequence[Fired],
    clock: Mapping[int, int],
    after_ms: int,
) -> Iterator[tuple[str, object]]:
    """What is wrong with the timers of one key; the clock is when each entry was committed."""
    left = list(fired)
    for silence in silences:
        mine = [
            row
            for row in left
            if row.n > silence.since and (silence.until is None or row.n < silence.until)
        ]
        left = [row for row in left if row not in mine]
        due = _due_at(silence.since, clock, after_ms)
        if len(mine) > 1:
            yield "fired more than once in a silence", (key, mine)
        if not mine and (silence.until is None or (due is not None and due < silence.until)):
            yield "never fired", (key, silence)
        for row in mine[:1]:
            armed = (silence.record_ms, clock[silence.since])
            if row.deadline_ms < armed[0] + after_ms - CLOCK_MS or row.deadline_ms > clock[row.n]:
                yield "fired early", (row, silence)
            if row.deadline_ms > armed[1] + after_ms or (due is not None and row.n > due):
                yield "fired late", (row, silence)
    for row in left:
        yield "fired without a silence", row


def _due_at(since: int, clock: Mapping[int, int], after_ms: int) -> int | None:
    """The entry that must fire a key armed in another, at the latest.

    A micro-batch looks at the clock after the entry before it was committed.
    """
    ready = (n for n in range(since, max(clock)) if clock[n] >= clock[since] + after_ms + CLOCK_MS)
    first = next(ready, None)
    return None if first is None else first + 1


def read_totals(lake: Path, sink_id: str) -> list[Total]:
    """The rows of running totals."""
    tables = read_columns(lake, sink_id, ["key", "records", "total", "_entry"])
    return [Total(*row.values()) for table in tables for row in table.to_pylist()]


def read_fired(lake: Path, sink_id: str) -> list[Fired]:
    """The rows of timers."""
    tables = read_columns(lake, sink_id, ["key", "deadline", "_entry"])
    whole = (table.set_column(1, "deadline", table["deadline"].cast("int64")) for table in tables)
    return [Fired(*row.values()) for table in whole for row in table.to_pylist()]


def check_aggregate_sink(lake: Path, sink_id: str, topic: str, acked: Acked) -> list[str]:
    """All that running totals promise."""
    rows = read_totals(lake, sink_id)
    entries = read_entries(lake, sink_id)
    problems = check_totals(acked, rows) + check_versions(acked, steps_of(entries, topic), rows)
    return problems + check_ledger(lake, entries, topic, acked)


def check_timer_sink(
    lake: Path,
    sink_id: str,
    topic: str,
    acked: Acked,
    times_ms: Mapping[tuple[int, int], int],
    *,
    after_ms: int,
) -> list[str]:
    """All that timers promise."""
    fired = read_fired(lake, sink_id)
    entries = read_entries(lake, sink_id)
    steps = steps_of(entries, topic)
    problems = check_timers(acked, times_ms, steps, fired, after_ms=after_ms)
    return problems + check_ledger(lake, entries, topic, acked)
