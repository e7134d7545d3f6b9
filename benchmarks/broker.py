"""`python -m benchmarks.broker`: Holdfast and Apache Kafka, interleaved and repeated.

Each broker runs alone while it is measured, in a fresh folder that is removed afterwards. A full
run of everything writes docs/reference/benchmarks.md and a JSON file under benchmarks/results.
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import KafkaException
from tests.peers.jars import PeerUnavailable
from tests.peers.process import PeerFailed

from benchmarks import report
from benchmarks.java_client import ClientFailed
from benchmarks.machine import ROOT, describe_machine
from benchmarks.rows import FULL, QUICK, Sizes, Workload, start_up
from benchmarks.samples import Failure, Sample
from benchmarks.variants import VARIANTS, Variant, variants_named

PAGE = ROOT / "docs" / "reference" / "benchmarks.md"
RESULTS = ROOT / "benchmarks" / "results"
EXPECTED = (ClientFailed, PeerFailed, KafkaException, TimeoutError, OSError)


class Session:
    """Runs the rows, keeps the samples, and goes on after a row that failed."""

    def __init__(self, folder: Path, sizes: Sizes, only_rows: str) -> None:
        self.samples: list[Sample] = []
        self.failures: list[Failure] = []
        self._folder = folder
        self._sizes = sizes
        self._only_rows = only_rows
        self._begun = time.monotonic()
        self._java_records: dict[str, int] = {}

    def run_rows(self, variant: Variant) -> None:
        folder = self._folder / variant.name
        try:
            broker = variant.open(folder).start()
        except EXPECTED as failure:
            self._failed("start", variant, failure)
            return
        try:
            workload = Workload(variant, broker, self._sizes, self._java_records)
            for name, row in workload.rows():
                if name != "warm-up" and self._only_rows not in name:
                    continue
                try:
                    for sample in row():
                        self._take(sample)
                except EXPECTED as failure:
                    self._failed(name, variant, failure)
        finally:
            broker.stop()
            shutil.rmtree(folder, ignore_errors=True)

    def run_start_up(self, variant: Variant) -> None:
        if not variant.start_up or self._only_rows not in "start-up":
            return
        folder = self._folder / f"{variant.name}-start-up"
        try:
            for sample in start_up(variant, folder, self._sizes):
                self._take(sample)
        except EXPECTED as failure:
            self._failed("start-up", variant, failure)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

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


def main() -> int:
    arguments = _parser().parse_args()
    sizes = QUICK if arguments.quick else FULL
    repeats = arguments.repeats or (1 if arguments.quick else 3)
    chosen = variants_named(arguments.only)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=arguments.folder) as folder:
        machine = describe_machine(Path(folder), disk_writes=sizes.disk_writes)
        session = Session(Path(folder), sizes, arguments.rows)
        try:
            for _ in range(repeats):
                for variant in chosen:
                    session.run_rows(variant)
            for variant in chosen:
                session.run_start_up(variant)
        except PeerUnavailable as unavailable:
            print(f"not run: {unavailable}")
            return 2
    page = report.markdown(machine, session.samples, session.failures, repeats)
    print(page)
    complete = not arguments.quick and len(chosen) == len(VARIANTS) and not arguments.rows
    if complete or arguments.write:
        report.write(PAGE, page)
        stem = f"{machine.date}-{machine.commit}"
        result = report.as_json(machine, session.samples, session.failures, repeats)
        report.write(RESULTS / f"{stem}.json", result + "\n")
    return 1 if session.failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.broker", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, one repeat: a smoke")
    parser.add_argument("--repeats", type=int, help="default 3, or 1 with --quick")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="variants whose name begins with this: " + ", ".join(v.name for v in VARIANTS),
    )
    parser.add_argument("--rows", default="", help="rows whose name contains this, or start-up")
    parser.add_argument("--folder", help="where the brokers' folders go; default: the temp folder")
    parser.add_argument("--write", action="store_true", help="write the page of a partial run too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
