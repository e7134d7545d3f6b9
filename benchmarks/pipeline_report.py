"""The pipeline's figures as people read them (markdown) and as machines do (JSON).

Pure. Each row is a table: its variants, their medians, and how they compare with the peers' own.
"""

import dataclasses
import statistics
from dataclasses import dataclass

import msgspec

from benchmarks.machine import Machine
from benchmarks.pipeline_work import (
    SPARK,
    SPARK_TRACKED,
    STOCK,
    STOCK_FILES,
    STOCK_TUNED,
    STREAMS,
    Result,
    all_variants,
)
from benchmarks.samples import Failure

PEERS = tuple(v.name for v in (STOCK, STOCK_TUNED, SPARK, SPARK_TRACKED, STREAMS, STOCK_FILES))
BETTER = {"rows/s": "higher is better"}
INTRODUCTION = """\
# Benchmarks of the pipeline

The Holdfast source and dedup on Spark beside Spark's own Kafka source and operators, and beside
Kafka Streams. `make bench-spark` writes this page; do not edit it.

One Apache Kafka and one Holdfast broker on the same machine held the same {records:,} records:
100 to 150 bytes of JSON, a key of 16 bytes, six partitions, no compression, one record in ten
sent twice. The variants took turns. Each ran in its own process with its own JVM and `local[2]`,
and did the same work on part of the records before the timed run.

Each cell is the median of the repeats; the lowest and the highest value are in brackets. A column
"/ name" is the row's value divided by that variant's. The column "others, cores" is the most CPU,
in cores, that all other processes on the machine used during the run.
"""
NOTES = {
    "backfill": (
        "A batch query over the whole topic. Spark's Parquet writer and ours both use zstd. \"Past"
        ' the JVM" is what `holdfast backfill` does: Python workers turn record batches into'
        " Parquet files, and one entry of the [ledger](../glossary.md) commits them."
    ),
    "dedup": (
        "Deduplication by the record's key, in micro-batches of {per_trigger:,} records, into"
        " Parquet. The first micro-batch does not count: the clock runs from its commit to the last"
        " commit. Kafka Streams writes to a topic; its clock starts after the same number of"
        " records and stops when its last offsets are committed. A variant whose output is not"
        " exactly the distinct keys is listed under Not measured. Spark's operator is"
        ' dropDuplicates for "for ever" and dropDuplicatesWithinWatermark for "within".'
    ),
    "latency": (
        "1,000 records per second, six partitions, no state: the time from the producer's timestamp"
        " until a committed output file holds the record."
    ),
    "recovery": (
        "Dedup within two hours. The driver, its JVM and its workers are killed with SIGKILL during"
        " a micro-batch, and a new driver is started. The first table is the time from the start of"
        " its process to its first commit; the second counts only from the start of the query."
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One value of one variant in one repeat."""

    variant: str
    result: Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """All that a run of the benchmark found."""

    machine: Machine
    records: int
    per_trigger: int
    repeats: int
    measured: tuple[Measured, ...]
    failures: tuple[Failure, ...]


def markdown(run: Run) -> str:
    """The whole page."""
    parts = [INTRODUCTION.format(records=run.records), _machine(run), _legend(run)]
    section = ""
    for row in dict.fromkeys(m.result.row for m in run.measured):
        if row.split()[0] != section:
            section = row.split()[0]
            note = NOTES[section].format(per_trigger=run.per_trigger)
            parts.append(f"## {section.capitalize()}\n\n{_wrapped(note)}\n")
        for metric in dict.fromkeys(m.result.metric for m in run.measured if m.result.row == row):
            chosen = [m for m in run.measured if (m.result.row, m.result.metric) == (row, metric)]
            parts.append(_table(row, metric, chosen))
    if run.failures:
        lines = [f"- {f.variant}, {f.row}: {f.reason}" for f in run.failures]
        parts.append("## Not measured\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def as_json(run: Run) -> str:
    """Every value, not only the medians."""
    values = [{"variant": m.variant, **msgspec.structs.asdict(m.result)} for m in run.measured]
    whole = {
        "machine": dataclasses.asdict(run.machine),
        "records": run.records,
        "per_trigger": run.per_trigger,
        "repeats": run.repeats,
        "measured": values,
        "failures": [dataclasses.asdict(failure) for failure in run.failures],
    }
    return msgspec.json.format(msgspec.json.encode(whole), indent=1).decode()


class _StoredValue(Result, frozen=True, kw_only=True):
    variant: str


class _StoredRun(msgspec.Struct, frozen=True, kw_only=True):
    records: int
    per_trigger: int
    repeats: int
    measured: list[_StoredValue]


def joined(run: Run, earlier: str) -> Run:
    """A run and the JSON of an earlier one of the same sizes, as if they had been one."""
    stored = msgspec.json.decode(earlier, type=_StoredRun)
    if (stored.records, stored.per_trigger) != (run.records, run.per_trigger):
        raise ValueError(f"the earlier run had {stored.records} records, not {run.records}")
    before = tuple(
        Measured(
            variant=value.variant,
            result=Result(
                row=value.row,
                metric=value.metric,
                value=value.value,
                other_cores=value.other_cores,
            ),
        )
        for value in stored.measured
    )
    return dataclasses.replace(
        run, repeats=run.repeats + stored.repeats, measured=(*before, *run.measured)
    )


def _machine(run: Run) -> str:
    machine = run.machine
    rows = {
        "date": machine.date,
        "commit": machine.commit,
        "machine": f"{machine.cores} cores, {machine.memory_gib} GiB, {machine.system}",
        "load average at the start": str(machine.load_at_start),
        "disk alone, 1 MiB + fdatasync": (
            f"{machine.disk_sync_ms} ms, {machine.disk_mb_per_second} MB/s"
        ),
        "repeats": str(run.repeats),
    }
    lines = [f"| {name} | {value} |" for name, value in rows.items()]
    return "\n".join(["| | |", "| --- | --- |", *lines, ""])


def _legend(run: Run) -> str:
    names = {m.variant for m in run.measured}
    lines = [f"- `{v.name}`: {v.title}" for v in all_variants() if v.name in names]
    return "\n".join([*lines, ""])


def _table(row: str, metric: str, chosen: list[Measured]) -> str:
    groups: dict[str, list[Measured]] = {}
    for measured in chosen:
        groups.setdefault(measured.variant, []).append(measured)
    peers = [name for name in PEERS if name in groups]
    heads = ["", metric, *(f"/ {name}" for name in peers), "others, cores"]
    direction = BETTER.get(metric, "lower is better")
    lines = [
        f"### {row[0].upper()}{row[1:]}, {metric} ({direction})",
        "",
        "| " + " | ".join(heads) + " |",
        "| --- |" + " --- |" * (len(heads) - 1),
    ]
    for name, group in groups.items():
        values = [m.result.value for m in group]
        median = statistics.median(values)
        ratios = [
            f"{median / statistics.median([m.result.value for m in groups[peer]]):.2f}"
            for peer in peers
        ]
        others = max(m.result.other_cores for m in group)
        lines.append("| " + " | ".join([name, _cell(values), *ratios, f"{others:.2f}"]) + " |")
    return "\n".join([*lines, ""])


def _cell(values: list[float]) -> str:
    middle = _number(statistics.median(values))
    if len(values) == 1:
        return middle
    return f"{middle} ({_number(min(values))} to {_number(max(values))})"


def _number(value: float) -> str:
    if value >= 100_000:
        return f"{value / 1e6:.2f} M"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _wrapped(text: str, width: int = 100) -> str:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) + 1 > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)
