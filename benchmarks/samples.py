"""What a benchmark measures: samples, their rows, and the median and spread of repeats.

Pure: it neither measures nor prints.
"""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A thing that is measured, and in which direction it is better."""

    name: str
    unit: str
    higher_is_better: bool


THROUGHPUT = Metric(name="throughput", unit="MB/s", higher_is_better=True)
BROKER_CPU = Metric(name="broker CPU", unit="s/GB", higher_is_better=False)
LATENCY = Metric(name="latency", unit="ms", higher_is_better=False)
START_UP = Metric(name="start-up", unit="s", higher_is_better=False)
PUTS = Metric(name="object PUTs", unit="per GB", higher_is_better=False)
FILES = Metric(name="new files in the store", unit="per GB", higher_is_better=False)
REBALANCE = Metric(name="rebalance", unit="s", higher_is_better=False)
COMMITS = Metric(name="offset commits", unit="per s", higher_is_better=True)
TRANSACTIONS = Metric(name="transactions", unit="per s", higher_is_better=True)
CPU_EACH = Metric(name="broker CPU for each", unit="ms", higher_is_better=False)
PAUSE = Metric(name="pause at a hand-off", unit="ms", higher_is_better=False)
FAILED = Metric(name="records that failed", unit="count", higher_is_better=False)
PUTS_BY_HOUR = Metric(name="PUTs of a cluster", unit="per hour", higher_is_better=False)
RECORDS = Metric(name="records landed", unit="per s", higher_is_better=True)
LANDED = Metric(name="bytes landed", unit="MB/s", higher_is_better=True)
MEMORY = Metric(name="peak memory", unit="MiB", higher_is_better=False)
CPU_OF_MILLION = Metric(name="CPU", unit="s for a million records", higher_is_better=False)
FIRST_COMMIT = Metric(name="start to first commit", unit="s", higher_is_better=False)
METRICS = (
    *(THROUGHPUT, RECORDS, LANDED, MEMORY, CPU_OF_MILLION, FIRST_COMMIT),
    *(REBALANCE, COMMITS, TRANSACTIONS, BROKER_CPU, CPU_EACH),
    *(PAUSE, FAILED, LATENCY, START_UP, PUTS, PUTS_BY_HOUR, FILES),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One value of one row, on one variant, in one repeat."""

    metric: Metric
    row: str
    variant: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A row that could not be measured, and why."""

    row: str
    variant: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The repeats of one row on one variant."""

    median: float
    low: float
    high: float
    repeats: int


def summaries(samples: Iterable[Sample]) -> dict[tuple[Metric, str, str], Summary]:
    """Per metric, row and variant, in the order of first appearance."""
    values: dict[tuple[Metric, str, str], list[float]] = {}
    for sample in samples:
        values.setdefault((sample.metric, sample.row, sample.variant), []).append(sample.value)
    return {
        key: Summary(
            median=statistics.median(group), low=min(group), high=max(group), repeats=len(group)
        )
        for key, group in values.items()
    }
