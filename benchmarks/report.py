"""The result as people read it (markdown, text) and as machines do (JSON)."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.machine import Machine
from benchmarks.samples import METRICS, Failure, Metric, Sample, Summary, summaries
from benchmarks.variants import VARIANTS


def markdown(
    introduction: str,
    machine: Machine,
    samples: Sequence[Sample],
    failures: Sequence[Failure],
    repeats: int,
) -> str:
    """The whole page."""
    parts = [introduction, _machine_table(machine, repeats), _legend(samples)]
    for metric in METRICS:
        if any(sample.metric == metric for sample in samples):
            parts.append(_metric_table(metric, samples))
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


def _machine_table(machine: Machine, repeats: int) -> str:
    rows = {
        "date": machine.date,
        "commit": machine.commit,
        "machine": f"{machine.cores} cores, {machine.memory_gib} GiB, {machine.system}",
        "load average when it began": _load(machine),
        "the disk's own limit": (
            f"1 MiB + fdatasync: {machine.disk_sync_ms} ms, {machine.disk_mb_per_second} MB/s"
        ),
        "repeats": str(repeats),
    }
    lines = [f"| {name} | {value} |" for name, value in rows.items()]
    return "\n".join(["| | |", "| --- | --- |", *lines, ""])


def _load(machine: Machine) -> str:
    load = f"{machine.load_at_start}"
    if machine.load_at_start > machine.cores / 2:
        return f"{load}: other work was running, so read no figure here as the broker's own"
    return load


def _legend(samples: Sequence[Sample]) -> str:
    measured = {sample.variant for sample in samples}
    lines = [f"- `{v.name}`: {v.title}" for v in VARIANTS if v.name in measured]
    return "\n".join([*lines, ""])


def _metric_table(metric: Metric, samples: Sequence[Sample]) -> str:
    chosen = [sample for sample in samples if sample.metric == metric]
    found = summaries(chosen)
    rows = list(dict.fromkeys(sample.row for sample in chosen))
    measured = {sample.variant for sample in chosen}
    columns = [variant.name for variant in VARIANTS if variant.name in measured]
    direction = "higher is better" if metric.higher_is_better else "lower is better"
    ratios = [
        (f"{ours} / {theirs}", ours, theirs)
        for ours, theirs in (
            ("holdfast-directory", "kafka"),
            ("holdfast-directory", "kafka-flush"),
        )
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
