"""What a job has done so far, for a person: one live line on a terminal, plain lines elsewhere.

Owns the counts of a run and how they read. Must never ask Spark or a store: it is told.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TextIO, cast

from holdfast.errors import CorruptObject
from holdfast.live_text import LiveText, PlainText
from holdfast.spark import offsets

GAUGES = ("state_rows", "state_bytes")
"""Of the newest micro-batch; all other counts add up."""

SHOWN = ("kept", "duplicates", "updated", "fired")
"""What a summary says by the names of the counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDone:
    """One micro-batch that is committed."""

    batch_id: int
    seconds: float
    counts: Mapping[str, int]
    """As the ledger entry has them: rows, kept, duplicates, late, ..., and the state's size."""
    files: int
    was_known: bool = False
    """It had been committed before: a replay, which changed nothing."""

    @property
    def rows(self) -> int:
        return self.counts.get("rows", 0)


@dataclass(slots=True, kw_only=True)
class Totals:
    """A run, summed up."""

    batches: int = 0
    files: int = 0
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict[str, int])
    lag: int | None = None
    """Records that wait in the source, as far as the last micro-batch knew."""
    last: BatchDone | None = None

    def add(self, done: BatchDone) -> None:
        if done.was_known:
            return
        self.last = done
        self.batches += 1
        self.files += done.files
        self.seconds += done.seconds
        for name, number in done.counts.items():
            before = 0 if name in GAUGES else self.counts.get(name, 0)
            self.counts[name] = before + number


class Reporter(Protocol):
    """Where a job says what it does."""

    def tell(self, text: str) -> None:
        """Something that is said once, and stays."""
        ...

    def show(self, text: str) -> None:
        """How things stand; the next one takes its place."""
        ...

    def batch(self, done: BatchDone, totals: Totals) -> None:
        """A micro-batch is done."""
        ...

    def close(self) -> None: ...


class LiveLine(LiveText):
    """A terminal: one line that changes."""

    def batch(self, done: BatchDone, totals: Totals) -> None:
        self.show(batch_line(done, totals))


class PlainLines(PlainText):
    """A log file or a pipe: a line for each micro-batch."""

    def batch(self, done: BatchDone, totals: Totals) -> None:
        self.tell(batch_line(done, totals))


def reporter_for(stream: TextIO) -> Reporter:
    return LiveLine(stream) if stream.isatty() else PlainLines(stream)


def batch_line(done: BatchDone, totals: Totals) -> str:
    """One micro-batch in one line."""
    if done.was_known:
        return f"batch {done.batch_id}: was committed before, nothing to do"
    took = f"batch {done.batch_id}: {done.rows:,} rows in {done.seconds:.1f} s"
    return ", ".join([f"{took} ({rate(done.rows, done.seconds)})", *_facts(done, totals)])


def running_line(batch_id: int, seconds: float, totals: Totals) -> str:
    """A micro-batch that still runs, and how things stood before it."""
    line = f"batch {batch_id} runs, {seconds:.0f} s"
    last = totals.last
    if last is None:
        return line
    return ", ".join([line, rate(last.rows, last.seconds), *_facts(last, totals)])


def _facts(done: BatchDone, totals: Totals) -> list[str]:
    parts = [f"total {totals.counts.get('rows', 0):,}"]
    if totals.lag is not None:
        parts.append(f"lag {totals.lag:,} records")
    if "duplicates" in done.counts:
        parts.append(f"{done.counts['duplicates']:,} duplicates")
    for name, words in (("updated", "keys updated"), ("fired", "timers fired"), ("late", "late")):
        if done.counts.get(name):
            parts.append(f"{done.counts[name]:,} {words}")
    if "state_rows" in done.counts:
        parts.append(f"state {done.counts['state_rows']:,} rows")
    return parts


def rate(rows: int, seconds: float) -> str:
    per_second = rows / seconds if seconds > 0 else 0.0
    if per_second >= 1_000_000:
        return f"{per_second / 1_000_000:.2f} M rows/s"
    return f"{per_second:,.0f} rows/s"


def summary(totals: Totals) -> list[tuple[str, str]]:
    """The end of a run, as lines of a name and a text."""
    counts = totals.counts
    lines = [("rows in", f"{counts.get('rows', 0):,}")]
    lines += [(name, f"{counts[name]:,}") for name in SHOWN if name in counts]
    if "late" in counts:
        diverted = counts.get("diverted", 0)
        text = f"{counts['late']:,}"
        lines.append(("late", f"{text} ({diverted:,} diverted)" if diverted else text))
    if counts.get("keyless"):
        lines.append(("without key", f"{counts['keyless']:,} (all kept)"))
    lines.append(("files", f"{totals.files:,} in {totals.batches:,} micro-batches"))
    if "state_rows" in counts:
        size = counts.get("state_bytes", 0) / 1024 / 1024
        lines.append(("state", f"{counts['state_rows']:,} rows, {size:,.1f} MiB"))
    if totals.lag is not None:
        lines.append(("lag", f"{totals.lag:,} records"))
    return lines


def lag_of(progress: Mapping[str, Any]) -> int | None:
    """Records that wait, by Spark's progress of a micro-batch; None where it does not tell."""
    lag = 0
    for source in progress.get("sources") or ():
        end, latest = source.get("endOffset"), source.get("latestOffset")
        if not isinstance(end, dict) or not isinstance(latest, dict):
            return None
        try:
            read = offsets.from_json(cast(object, end)).positions
            there = offsets.from_json(cast(object, latest)).positions
        except CorruptObject:
            return None
        lag += sum(max(0, n - read.get(where, 0)) for where, n in there.items())
    return lag
