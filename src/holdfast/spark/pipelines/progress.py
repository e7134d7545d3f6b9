"""The progress of a job: one live line on a terminal, plain lines elsewhere, or JSON lines.

Owns the counts of a run and how they are shown. Must never ask Spark or a store: callers pass
everything in.
"""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TextIO

from holdfast.json_lines import Emit
from holdfast.live_text import LiveText, PlainText

GAUGES = ("state_rows", "state_bytes")
"""Counts that hold for the newest micro-batch. All other counts add up."""

SHOWN = ("kept", "duplicates", "updated", "fired")
"""Counts that a summary shows by their own names."""

COUNTED = (
    ("updated", "keys updated"),
    ("fired", "timers fired"),
    ("late", "late"),
    ("unreadable", "left out, unreadable"),
)
"""Counts that a micro-batch's line shows if they are not zero, and the words for them."""

IDLE_LINE_S = 60.0
"""How often an idle run is reported if each report adds a line: in a log, and as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDone:
    """A micro-batch that is committed."""

    batch_id: int
    seconds: float
    counts: Mapping[str, int]
    """The counts of the ledger entry: rows, kept, duplicates, late, ..., size of the state."""
    files: int
    was_known: bool = False
    """True if it had been committed before: a replay, which changed nothing."""

    @property
    def rows(self) -> int:
        return self.counts.get("rows", 0)


@dataclass(slots=True, kw_only=True)
class RunTotals:
    """The sums of a run."""

    batches: int = 0
    files: int = 0
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict[str, int])
    lag: int | None = None
    """Records that wait in the source; None if that is not known."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleTime:
    """The time since the last micro-batch of a run."""

    since_ms: int
    seconds: float


class Reporter(Protocol):
    """The output for the progress of a job."""

    def tell(self, text: str) -> None:
        """Show a text that stays."""
        ...

    def show(self, text: str) -> None:
        """Show the current status; the next one replaces it."""
        ...

    def batch(self, done: BatchDone, totals: RunTotals) -> None:
        """Report a finished micro-batch."""
        ...

    def idle(self, idle: IdleTime, totals: RunTotals) -> None:
        """Report that no micro-batch runs. Called again and again while that is so."""
        ...

    def close(self) -> None: ...


class LiveLine(LiveText):
    """Progress on a terminal: one line that changes."""

    def batch(self, done: BatchDone, totals: RunTotals) -> None:
        self.show(batch_line(done, totals))

    def idle(self, idle: IdleTime, totals: RunTotals) -> None:
        self.show(idle_line(idle, totals))


class PlainLines(PlainText):
    """Progress in a log file or a pipe: a line for each micro-batch, and for each idle minute."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._due_s = IDLE_LINE_S

    def batch(self, done: BatchDone, totals: RunTotals) -> None:
        self._due_s = IDLE_LINE_S
        self.tell(batch_line(done, totals))

    def idle(self, idle: IdleTime, totals: RunTotals) -> None:
        if idle.seconds >= self._due_s:
            self._due_s = idle.seconds + IDLE_LINE_S
            self.tell_idle(idle, totals)

    def tell_idle(self, idle: IdleTime, totals: RunTotals) -> None:
        self.tell(idle_line(idle, totals))


class JsonReport(PlainLines):
    """Progress as JSON events. What `tell` shows goes to the stream, as text."""

    def __init__(self, emit: Emit, stream: TextIO) -> None:
        super().__init__(stream)
        self._emit = emit

    def batch(self, done: BatchDone, totals: RunTotals) -> None:
        self._due_s = IDLE_LINE_S
        self._emit("batch", batch_fields(done, totals))

    def tell_idle(self, idle: IdleTime, totals: RunTotals) -> None:
        self._emit("idle", idle_fields(idle, totals))


def reporter_for(stream: TextIO, emit: Emit | None = None) -> Reporter:
    """Return a reporter: JSON lines if `emit` is given, otherwise what suits the stream."""
    if emit is not None:
        return JsonReport(emit, stream)
    return LiveLine(stream) if stream.isatty() else PlainLines(stream)


def batch_fields(done: BatchDone, totals: RunTotals) -> dict[str, Any]:
    """Return the figures of `batch_line`."""
    return {
        "batch_id": done.batch_id,
        "seconds": round(done.seconds, 3),
        "rows_per_second": round(done.rows / done.seconds) if done.seconds > 0 else 0,
        "counts": dict(done.counts),
        "files": done.files,
        "committed_before": done.was_known,
        "total_rows": totals.counts.get("rows", 0),
        "lag": totals.lag,
    }


def idle_fields(idle: IdleTime, totals: RunTotals) -> dict[str, Any]:
    """Return the figures of `idle_line`."""
    return {
        "idle_since_ms": idle.since_ms,
        "seconds": round(idle.seconds, 3),
        "total_rows": totals.counts.get("rows", 0),
        "lag": totals.lag,
    }


def summary_fields(totals: RunTotals) -> dict[str, Any]:
    """Return the figures of `summary`."""
    return {
        "batches": totals.batches,
        "files": totals.files,
        "seconds": round(totals.seconds, 3),
        "counts": dict(totals.counts),
        "lag": totals.lag,
    }


def batch_line(done: BatchDone, totals: RunTotals) -> str:
    """Return a line about a finished micro-batch."""
    if done.was_known:
        return f"batch {done.batch_id}: was committed before, nothing was written"
    took = f"batch {done.batch_id}: {done.rows:,} rows in {done.seconds:.1f} s"
    return ", ".join([f"{took} ({rate(done.rows, done.seconds)})", *_facts(done, totals)])


def running_line(batch_id: int, seconds: float, totals: RunTotals) -> str:
    """Return a line about a micro-batch that still runs, with the figures of the previous one."""
    line = f"batch {batch_id} is running, {seconds:.0f} s"
    last = totals.last
    if last is None:
        return line
    return ", ".join([line, rate(last.rows, last.seconds), *_facts(last, totals)])


def idle_line(idle: IdleTime, totals: RunTotals) -> str:
    """Return a line about a run that waits for records, or for the trigger if there are some."""
    what = "waiting" if totals.lag else "idle"
    # In the local time zone, because people compare it with their clock.
    since = datetime.datetime.fromtimestamp(idle.since_ms / 1000).isoformat(" ", "seconds")
    return ", ".join([f"{what} since {since} ({idle.seconds:.0f} s)", *_total(totals)])


def _total(totals: RunTotals) -> list[str]:
    """Return lag and total. The lag is first: a narrow terminal cuts the end of a line off."""
    lag = "unknown" if totals.lag is None else f"{totals.lag:,} records"
    return [f"lag {lag}", f"total {totals.counts.get('rows', 0):,}"]


def _facts(done: BatchDone, totals: RunTotals) -> list[str]:
    parts = _total(totals)
    if "duplicates" in done.counts:
        parts.append(f"{done.counts['duplicates']:,} duplicates")
    for name, words in COUNTED:
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


def summary(totals: RunTotals) -> list[tuple[str, str]]:
    """Return the report at the end of a run, as pairs of a name and a text."""
    counts = totals.counts
    lines = [("rows in", f"{counts.get('rows', 0):,}")]
    lines += [(name, f"{counts[name]:,}") for name in SHOWN if name in counts]
    if "late" in counts:
        diverted = counts.get("diverted", 0)
        text = f"{counts['late']:,}"
        lines.append(("late", f"{text} ({diverted:,} diverted)" if diverted else text))
    if counts.get("unreadable"):
        told = f"{counts['unreadable']:,} records left out; `holdfast landed` names them"
        lines.append(("unreadable", told))
    if counts.get("keyless"):
        lines.append(("without key", f"{counts['keyless']:,} (all kept)"))
    lines.append(("files", f"{totals.files:,} in {totals.batches:,} micro-batches"))
    if "state_rows" in counts:
        size = counts.get("state_bytes", 0) / 1024 / 1024
        lines.append(("state", f"{counts['state_rows']:,} rows, {size:,.1f} MiB"))
    if totals.lag is not None:
        lines.append(("lag", f"{totals.lag:,} records"))
    return lines
