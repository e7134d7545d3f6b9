"""The one chart of the README: each row is Holdfast's result divided by the peer's.

    python -m benchmarks.chart

Reads the newest result of each benchmark and draws docs/assets/benchmarks.svg. A result that was
measured while the machine did other work is refused: its ratio says nothing.
"""

import json
import math
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.machine import QUIET_LOAD_MAX, ROOT

RESULTS = ROOT / "benchmarks" / "results"
CHART = ROOT / "docs" / "assets" / "benchmarks.svg"
LEFT, RIGHT, TOP, ROW = 280, 740, 64, 30
LOWEST, HIGHEST = 1 / 4, 16.0
BETTER, WORSE = "#0284c7", "#d97706"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One bar: which row of which result, ours and the peer's."""

    label: str
    result: str
    row: str
    ours: str
    peer: str
    unit: str
    scale: float = 1.0
    metric: str | None = None
    lower_is_better: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    label: str
    peer_name: str
    ours: float
    peer: float
    unit: str
    times_better: float


def broker_row(label: str, row: str) -> Row:
    names = {"ours": "holdfast-directory", "peer": "kafka"}
    return Row(label=label, result="", row=row, unit="MB/s", metric="throughput", **names)


def pause_row(label: str, row: str) -> Row:
    return Row(
        label=label,
        result="handoff-",
        row=row,
        ours="holdfast-store",
        peer="kafka",
        unit="s",
        scale=1000,
        metric="pause at a hand-off",
        lower_is_better=True,
    )


def pipeline_row(label: str, row: str, ours: str, peer: str) -> Row:
    return Row(
        label=label, result="pipeline-", row=row, ours=ours, peer=peer, unit="M rows/s", scale=1e6
    )


ROWS = (
    broker_row("Produce 1 KiB, librdkafka", "librdkafka produce 1 KiB"),
    broker_row("Produce 1 KiB, Java", "Java produce 1 KiB"),
    broker_row("Consume 1 KiB, librdkafka", "librdkafka consume 1 KiB"),
    broker_row("Consume 1 KiB, Java", "Java consume 1 KiB"),
    pause_row("A broker is stopped: producer waits", "planned, producer"),
    pause_row("A broker is killed: producer waits", "crash, producer"),
    pipeline_row("Topic to Spark, from the store", "backfill to noop", "holdfast-store", "stock"),
    pipeline_row("Dedup on Spark", "dedup for ever", "holdfast-store-ranges", "spark-rocksdb"),
)
PEERS = {"": "Kafka", "handoff-": "Kafka", "pipeline-": "Spark's own"}


def bars(rows: Iterable[Row], results: dict[str, dict[str, Any]]) -> list[Bar]:
    """One bar for each row that its result has, from medians."""
    drawn: list[Bar] = []
    for row in rows:
        values = results.get(row.result)
        if values is None:
            continue
        ours, peer = (_median(values, row, variant) for variant in (row.ours, row.peer))
        times = peer / ours if row.lower_is_better else ours / peer
        drawn.append(
            Bar(
                label=row.label,
                peer_name=PEERS[row.result],
                ours=ours / row.scale,
                peer=peer / row.scale,
                unit=row.unit,
                times_better=times,
            )
        )
    return drawn


def draw(drawn: Sequence[Bar], note: str) -> str:
    """The chart as SVG: a logarithmic axis, 1 in the middle of attention, longer is better."""
    height = TOP + ROW * len(drawn) + 54
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 {height}" role="img"'
        ' font-family="-apple-system, \'Segoe UI\', Helvetica, Arial, sans-serif" font-size="13">',
        "<title>Holdfast beside its peers, same run, same machine</title>",
        f'<rect width="960" height="{height}" rx="12" fill="#ffffff"/>',
        '<text x="24" y="30" font-size="15" font-weight="600" fill="#0f172a">'
        "How many times better than the peer (right of 1 is better, left is worse)</text>",
    ]
    for tick in (0.25, 0.5, 1, 2, 4, 8, 16):
        x, color = _x(tick), "#0f172a" if tick == 1 else "#cbd5e1"
        parts.append(
            f'<line x1="{x:.1f}" y1="{TOP - 14}" x2="{x:.1f}" y2="{height - 50}" stroke="{color}"/>'
            f'<text x="{x:.1f}" y="{height - 34}" text-anchor="middle" fill="#475569">'
            f"{tick:g}x</text>"
        )
    for number, bar in enumerate(drawn):
        parts += _bar(bar, TOP + ROW * number)
    parts.append(
        f'<text x="24" y="{height - 12}" font-size="12" fill="#475569">{escape(note)}</text>'
    )
    return "\n".join([*parts, "</svg>", ""])


def _bar(bar: Bar, y: int) -> list[str]:
    one, end = _x(1), _x(bar.times_better)
    color = BETTER if bar.times_better >= 1 else WORSE
    figures = f"{bar.ours:.3g} {bar.unit}, {bar.peer_name} {bar.peer:.3g}"
    return [
        f'<text x="{LEFT - 10}" y="{y + 12}" text-anchor="end" fill="#0f172a">'
        f"{escape(bar.label)}</text>",
        f'<rect x="{min(one, end):.1f}" y="{y}" width="{max(abs(end - one), 1):.1f}" height="16"'
        f' rx="2" fill="{color}"/>',
        f'<text x="{max(one, end) + 8:.1f}" y="{y + 12}" fill="#334155">{escape(figures)}</text>',
    ]


def _x(times: float) -> float:
    bounded = min(max(times, LOWEST), HIGHEST)
    share = math.log(bounded / LOWEST) / math.log(HIGHEST / LOWEST)
    return LEFT + share * (RIGHT - LEFT)


def _median(values: dict[str, Any], row: Row, variant: str) -> float:
    samples = values.get("samples") or values["measured"]
    found = [
        sample["value"]
        for sample in samples
        if sample["row"] == row.row
        and sample["variant"] == variant
        and (row.metric is None or sample["metric"]["name"] == row.metric)
    ]
    if not found:
        raise SystemExit(f"the newest result has no {row.row!r} of {variant}")
    return statistics.median(found)


def newest_quiet(kind: str) -> tuple[Path, dict[str, Any]] | None:
    """The newest result of a benchmark whose machine was quiet when it began."""
    for path in sorted(RESULTS.glob(f"{kind}20*.json"), reverse=True):
        values = json.loads(path.read_text())
        if values["machine"]["load_at_start"] <= QUIET_LOAD_MAX:
            return path, values
    return None


def main() -> int:
    results: dict[str, dict[str, Any]] = {}
    for kind, peer in PEERS.items():
        found = newest_quiet(kind)
        if found is None:
            print(f"no quiet result beside {peer}: run that benchmark on a machine without load")
            continue
        print(f"{peer}: {found[0].name}")
        results[kind] = found[1]
    drawn = bars(ROWS, results)
    if not drawn:
        return 1
    machine = next(iter(results.values()))["machine"]
    note = (
        f"{machine['date']}, {machine['cores']} cores, {machine['memory_gib']:.0f} GiB, medians."
        " Holdfast makes every record durable before it acknowledges; Kafka acknowledges from"
        " the page cache."
    )
    CHART.parent.mkdir(parents=True, exist_ok=True)
    CHART.write_text(draw(drawn, note))
    return 0


if __name__ == "__main__":
    sys.exit(main())
