"""Progress of a sink: live lines on a terminal, otherwise one line every ten seconds, text or JSON.

Owns the wording of a status, and when the next one is shown. Must never ask the worker: statuses
are passed in.
"""

import textwrap
from collections import deque
from typing import Any, TextIO

from holdfast.cli.tables import shown_bytes
from holdfast.environment import Environment
from holdfast.json_lines import Emit
from holdfast.live_text import LiveText, PlainText
from holdfast.sink.status import SinkStatus

REDRAW_S = 0.5
LINE_S = 10.0
WINDOW_S = 10.0
"""Number of latest seconds over which rates are measured."""
PROBLEMS_MAX = 3
MEGA = 1_000_000


class SinkProgress:
    """The display of a sink's progress: it takes every status, and shows what is due."""

    def __init__(
        self,
        stream: TextIO,
        *,
        memory_bytes: int,
        environment: Environment,
        emit: Emit | None = None,
    ) -> None:
        is_live = stream.isatty() and emit is None
        self._text = LiveText(stream) if is_live else PlainText(stream)
        self._emit = emit
        self._memory_bytes = memory_bytes
        self._environment = environment
        self._began = environment.monotonic()
        self._said: float | None = None
        self._before: SinkStatus | None = None
        self._fetched = 0
        self._samples: deque[tuple[float, int, int]] = deque()
        self._problems: set[str] = set()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return self._environment.monotonic() - self._began

    def tell(self, text: str) -> None:
        self._text.tell(text)

    def close(self) -> None:
        self._text.close()

    def report(self, status: SinkStatus) -> None:
        """Take the current status. Show it if the last one shown is old enough."""
        now = self._environment.monotonic()
        text = self._text
        if isinstance(text, PlainText):
            self._tell_changes(status)
        rates = self._rates(now, status)
        pause = LINE_S if isinstance(text, PlainText) else REDRAW_S
        if self._said is not None and now - self._said < pause:
            return
        self._said = now
        if self._emit is not None:
            self._emit("status", status_fields(status, rates, self._memory_bytes))
        elif isinstance(text, LiveText):
            text.show("\n".join(live_lines(status, rates, self._memory_bytes, text.width)))
        else:
            text.tell(plain_line(status, rates, self._memory_bytes))

    def _tell_changes(self, status: SinkStatus) -> None:
        """Report a problem when it appears and when it is solved, by the part before its colon."""
        problems = {problem.partition(": ")[0]: problem for problem in status.problems}
        for part in sorted(problems.keys() - self._problems):
            self._tell_change("problem", part, problems[part])
        for part in sorted(self._problems - problems.keys()):
            self._tell_change("solved", part, part)
        self._problems = set(problems)

    def _tell_change(self, event: str, part: str, text: str) -> None:
        if self._emit is not None:
            self._emit(event, {"of": part, "text": text})
        else:
            self._text.tell(f"{event}: {text}")

    def _rates(self, now: float, status: SinkStatus) -> tuple[float, float]:
        """Return records and bytes fetched per second over the last WINDOW_S."""
        if self._before is not None:
            self._fetched += records_between(self._before, status)
        self._before = status
        self._samples.append((now, self._fetched, status.bytes_fetched))
        while len(self._samples) > 2 and now - self._samples[1][0] >= WINDOW_S:
            self._samples.popleft()
        then, records, size = self._samples[0]
        seconds = now - then
        if seconds <= 0:
            return 0.0, 0.0
        return (self._fetched - records) / seconds, (status.bytes_fetched - size) / seconds


def records_between(before: SinkStatus, after: SinkStatus) -> int:
    """Estimate the records fetched between two statuses, from the positions of partitions that had
    begun in the first one."""
    return sum(
        max(0, now.position - then.position)
        for where, now in after.partitions.items()
        if (then := before.partitions.get(where)) is not None and then.landed is not None
    )


def live_lines(
    status: SinkStatus, rates: tuple[float, float], memory_bytes: int, width: int
) -> list[str]:
    """Return lines for a terminal: what is fetched, on the way and landed, and the problems."""
    lines = [
        f"{status.state}, {_counted(len(status.partitions), 'partition')}: {_flow(status, rates)}",
        f"{_on_the_way(status)}, memory {_memory(status, memory_bytes)}",
        f"landed {_landed(status)}",
    ]
    if status.last_landed is not None:
        lines.append(f"newest {status.last_landed}")
    problems = status.problems
    for problem in problems[:PROBLEMS_MAX]:
        lines += textwrap.wrap(f"PROBLEM {problem}", max(width, 20), subsequent_indent="  ")
    if len(problems) > PROBLEMS_MAX:
        lines.append(f"PROBLEM and {len(problems) - PROBLEMS_MAX} more")
    return lines


def plain_line(status: SinkStatus, rates: tuple[float, float], memory_bytes: int) -> str:
    """Return the whole status in one line, for a log."""
    parts = [
        f"{status.state}, {_counted(len(status.partitions), 'partition')}",
        _flow(status, rates),
        _on_the_way(status),
        f"memory {_memory(status, memory_bytes)}",
        f"landed {_landed(status)}",
    ]
    if status.last_landed is not None:
        parts.append(f"newest {status.last_landed}")
    problems = status.problems
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        parts.append(f"PROBLEM {problems[0]}{more}")
    return "; ".join(parts)


def status_fields(
    status: SinkStatus, rates: tuple[float, float], memory_bytes: int
) -> dict[str, Any]:
    """Return the figures of `plain_line`, for JSON."""
    parts = status.partitions.values()
    return {
        "state": status.state,
        "partitions": len(status.partitions),
        "records_per_second": round(rates[0], 1),
        "bytes_per_second": round(rates[1], 1),
        "lag": status.lag,
        "open_batches": sum(part.open_records > 0 for part in parts),
        "open_bytes": sum(part.open_bytes for part in parts),
        "uploads": sum(part.uploads for part in parts),
        "held_bytes": status.held_bytes,
        "memory_bytes": memory_bytes,
        "fetch_paused": status.fetch_paused,
        "records_landed": status.records_landed,
        "objects_landed": status.objects_landed,
        "bad_records": status.bad_records,
        "last_landed": status.last_landed,
        "problems": status.problems,
    }


def _flow(status: SinkStatus, rates: tuple[float, float]) -> str:
    lag = status.lag
    shown = "unknown" if lag is None else f"{lag:,} records"
    return f"{rates[0]:,.0f} records/s, {rates[1] / MEGA:,.1f} MB/s, lag {shown}"


def _on_the_way(status: SinkStatus) -> str:
    parts = status.partitions.values()
    is_open = sum(part.open_records > 0 for part in parts)
    size = shown_bytes(sum(part.open_bytes for part in parts))
    uploads = _counted(sum(part.uploads for part in parts), "upload")
    return f"{is_open} open {'batch' if is_open == 1 else 'batches'} of {size}, {uploads}"


def _memory(status: SinkStatus, memory_bytes: int) -> str:
    paused = ", fetching pauses" if status.fetch_paused else ""
    return f"{shown_bytes(status.held_bytes)} of {shown_bytes(memory_bytes)}{paused}"


def _landed(status: SinkStatus) -> str:
    bad = f", {_counted(status.bad_records, 'bad record')}" if status.bad_records else ""
    objects = _counted(status.objects_landed, "object")
    return f"{status.records_landed:,} records in {objects}{bad}"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def summary_fields(status: SinkStatus, seconds: float) -> dict[str, Any]:
    """Return the figures of `summary`, for JSON."""
    return {
        "seconds": round(seconds, 3),
        "records_landed": status.records_landed,
        "objects_landed": status.objects_landed,
        "bytes_landed": status.bytes_landed,
        "bytes_fetched": status.bytes_fetched,
        "bad_records": status.bad_records,
        "commits": status.commits,
        "commits_withheld": status.commits_withheld,
        "held_bytes_peak": status.held_bytes_peak,
        "objects_found": status.objects_found,
        "batches_abandoned": status.batches_abandoned,
        "rebalances": status.rebalances,
        "lag": status.lag,
        "problems": status.problems,
    }


def summary(status: SinkStatus, seconds: float) -> list[tuple[str, str]]:
    """Return the summary of a run, as pairs of a name and a text."""
    rate = status.records_landed / seconds if seconds > 0 else 0.0
    landed = f"{_landed(status)}, {shown_bytes(status.bytes_landed)}"
    lines = [
        ("landed", landed),
        ("fetched", f"{shown_bytes(status.bytes_fetched)} in {seconds:,.1f} s"),
        ("rate", f"{rate:,.0f} records/s"),
        ("commits", f"{status.commits:,} ({status.commits_withheld:,} withheld)"),
        ("memory", f"at most {shown_bytes(status.held_bytes_peak)} held"),
    ]
    if status.objects_found:
        objects = _counted(status.objects_found, "object")
        lines.append(("found", f"{objects} that other members had landed"))
    if status.batches_abandoned:
        lines.append(
            (
                "abandoned",
                f"{status.batches_abandoned:,} batches: the next owner writes those records",
            )
        )
    if status.rebalances:
        lines.append(("rebalances", f"{status.rebalances:,}"))
    if status.lag is not None:
        lines.append(("lag", f"{status.lag:,} records"))
    lines += [("problem", problem) for problem in status.problems]
    return lines
