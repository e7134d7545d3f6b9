"""Runs the rows of a benchmark on each broker in turn, keeps the samples, and goes on after a row
that failed.

Each broker runs alone while it is measured, in a fresh folder that is removed afterwards.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka import KafkaException
from tests.peers.process import PeerFailed

from benchmarks.java_client import ClientFailed
from benchmarks.samples import Failure, Sample
from benchmarks.variants import Broker, Variant

EXPECTED = (ClientFailed, PeerFailed, KafkaException, TimeoutError, OSError)
WARM_UP = "warm-up"

Row = Callable[[], Iterator[Sample]]
RowsOf = Callable[[Variant, Broker], list[tuple[str, Row]]]
"""The rows of a broker that runs, by name; one that is named warm-up is run whatever was chosen."""


class Session:
    """The samples and failures of one run."""

    def __init__(self, folder: Path, only_rows: str) -> None:
        self.samples: list[Sample] = []
        self.failures: list[Failure] = []
        self._folder = folder
        self._only_rows = only_rows
        self._begun = time.monotonic()

    def run_rows(self, variant: Variant, rows_of: RowsOf) -> None:
        folder = self._folder / variant.name
        try:
            broker = variant.open(folder).start()
        except EXPECTED as failure:
            self._failed("start", variant, failure)
            return
        try:
            for name, row in rows_of(variant, broker):
                if name == WARM_UP or self._only_rows in name:
                    self._run(name, variant, row)
        finally:
            broker.stop()
            shutil.rmtree(folder, ignore_errors=True)

    def run_alone(
        self, name: str, variant: Variant, row: Callable[[Path], Iterator[Sample]]
    ) -> None:
        """A row that starts its broker by itself, in the folder that it is given."""
        if self._only_rows not in name:
            return
        folder = self._folder / f"{variant.name}-{name}"
        try:
            self._run(name, variant, lambda: row(folder))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _run(self, name: str, variant: Variant, row: Row) -> None:
        try:
            for sample in row():
                self._take(sample)
        except EXPECTED as failure:
            self._failed(name, variant, failure)

    def _take(self, sample: Sample) -> None:
        self.samples.append(sample)
        elapsed = time.monotonic() - self._begun
        print(
            f"{elapsed:6.0f} s  {sample.variant:20} {sample.row:42} "
            f"{sample.value:10.2f} {sample.metric.name} {sample.metric.unit}",
            flush=True,
        )

    def _failed(self, row: str, variant: Variant, failure: BaseException) -> None:
        reason = " ".join(str(failure).split())[:300]
        self.failures.append(Failure(row=row, variant=variant.name, reason=reason))
        print(f"FAILED  {variant.name} {row}: {reason}", flush=True)
