"""The result as people read it (markdown, text) and as machines do (JSON)."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.machine import ROOT, Machine, is_quiet
from benchmarks.samples import METRICS, Failure, Metric, Sample, Summary, summaries
from benchmarks.variants import VARIANTS

PAGES = ROOT / "docs" / "reference"
RESULTS = ROOT / "benchmarks" / "results"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The columns of a page, and which of them are divided by which."""

    titles: Mapping[str, str]
    ratios: Sequence[tuple[str, str]]


BROKERS = Compared(
    titles={variant.name: variant.title for variant in VARIANTS},
    ratios=(("holdfast-directory", "kafka"), ("holdfast-directory", "kafka-flush")),
)


def markdown(
    introduction: str,
    machine: Machine,
    samples: Sequence[Sample],
    failures: Sequence[Failure],
    repeats: int,
    compared: Compared = BROKERS,
) -> str:
    """The whole page."""
    parts = [introduction, _machine_table(machine, repeats), _legend(samples, compared)]
    for metric in METRICS:
        if any(sample.metric == metric for sample in samples):
            parts.append(_metric_table(metric, samples, compared))
    if failures:
        lines = [f"- {f.variant}, {f.row}: {f.reason}" for f in failures]
        parts.append("## Not measured\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def as_json(
    machine: Machine, samples: Sequence[Sample], failures: Sequence[Failure], repeats: int
) -> str:
    """Every sample, not only the medians."""
    return json.dumps(
        {
            "machine": dataclasses.asdict(machine),
            "repeats": repeats,
            "samples": [dataclasses.asdict(sample) for sample in samples],
            "failures": [dataclasses.asdict(failure) for failure in failures],
        },
        indent=1,
    )


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def keep(machine: Machine, page_name: str, page: str, result_name: str, result: str) -> None:
    """Put a page where readers look for it, and every sample of it beside the others.

    A result that was measured on a busy machine is not published.
    """
    if not is_quiet(machine):
        print(f"not published: the load average was {machine.load_at_start} at the start")
        return
    write(PAGES / f"{page_name}.md", page)
    write(RESULTS / f"{result_name}.json", result + "\n")


def _machine_table(machine: Machine, repeats: int) -> str:
    rows = {
        "date": machine.date,
        "commit": machine.commit,
        "machine": f"{machine.cores} cores, {machine.memory_gib} GiB, {machine.system}",
        "load average at the start": str(machine.load_at_start),
        "disk alone, 1 MiB + fdatasync": (
            f"{machine.disk_sync_ms} ms, {machine.disk_mb_per_second} MB/s"
        ),
        "repeats": str(repeats),
    }
    lines = [f"| {name} | {value} |" for name, value in rows.items()]
    return "\n".join(["| | |", "| --- | --- |", *lines, ""])


def _legend(samples: Sequence[Sample], compared: Compared) -> str:
    measured = {sample.variant for sample in samples}
    lines = [f"- `{name}`: {title}" for name, title in compared.titles.items() if name in measured]
    return "\n".join([*lines, ""])


def _metric_table(metric: Metric, samples: Sequence[Sample], compared: Compared) -> str:
    chosen = [sample for sample in samples if sample.metric == metric]
    found = summaries(chosen)
    rows = list(dict.fromkeys(sample.row for sample in chosen))
    measured = {sample.variant for sample in chosen}
    columns = [name for name in compared.titles if name in measured]
    direction = "higher is better" if metric.higher_is_better else "lower is better"
    ratios = [
        (f"{ours} / {theirs}", ours, theirs)
        for ours, theirs in compared.ratios
        if ours in columns and theirs in columns
    ]
    heads = ["", *columns, *(title for title, _, _ in ratios)]
    lines = [
        f"## {metric.name[0].upper()}{metric.name[1:]}, {metric.unit} ({direction})",
        "",
        "| " + " | ".join(heads) + " |",
        "| --- |" + " --- |" * (len(heads) - 1),
    ]
    for row in rows:
        cells = [_cell(found.get((metric, row, column))) for column in columns]
        cells += [
            _ratio(found.get((metric, row, ours)), found.get((metric, row, theirs)))
            for _, ours, theirs in ratios
        ]
        lines.append("| " + " | ".join([row, *cells]) + " |")
    return "\n".join([*lines, ""])


def _cell(summary: Summary | None) -> str:
    if summary is None:
        return "-"
    if summary.repeats == 1:
        return _number(summary.median)
    return f"{_number(summary.median)} ({_number(summary.low)} to {_number(summary.high)})"


def _ratio(ours: Summary | None, theirs: Summary | None) -> str:
    if ours is None or theirs is None or theirs.median == 0:
        return "-"
    return f"{ours.median / theirs.median:.2f}"


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
