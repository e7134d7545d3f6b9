"""`python -m benchmarks.pipeline`: the pipeline on Spark beside its peers, interleaved, repeated.

One Apache Kafka and one Holdfast are filled once with the same records. Each variant then runs in
a process of its own, with its own JVM, one after the other. A full run writes
docs/reference/benchmarks-pipeline.md and a JSON file under benchmarks/results.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
from confluent_kafka import KafkaException
from tests.peers.jars import PeerUnavailable, java_command, program_class_path, spark_kafka_jars
from tests.peers.process import PeerFailed, Process

from benchmarks import pipeline_report, report
from benchmarks.librdkafka_client import create_topic
from benchmarks.machine import describe_machine
from benchmarks.pipeline_data import PARTITIONS, TOPIC, Brokers
from benchmarks.pipeline_quiet import Others, family, wait_for_quiet
from benchmarks.pipeline_report import Measured
from benchmarks.pipeline_work import (
    DEDUP_EVER,
    MARK,
    RECOVERY,
    RESULT,
    ROWS,
    STREAMS,
    WINDOW_MS,
    Result,
    Variant,
    Work,
)
from benchmarks.samples import Failure

VARIANT_SECONDS_MAX = 600.0
STREAMS_SECONDS_MAX = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much work a run does."""

    records: int
    warm_up: int
    per_trigger: int
    state_records: int
    latency_seconds: int
    disk_writes: int
    quiet_seconds_max: float


FULL = Sizes(
    records=5_000_000,
    warm_up=1_000_000,
    per_trigger=1_000_000,
    state_records=2_250_000,
    latency_seconds=30,
    disk_writes=60,
    quiet_seconds_max=240.0,
)
QUICK = Sizes(
    records=400_000,
    warm_up=100_000,
    per_trigger=100_000,
    state_records=200_000,
    latency_seconds=8,
    disk_writes=10,
    quiet_seconds_max=0.0,
)


class Session:
    """Runs variants, keeps what was measured, and goes on after one that failed."""

    def __init__(self, folder: Path, sizes: Sizes, brokers: Brokers) -> None:
        self.measured: list[Measured] = []
        self.failures: list[Failure] = []
        self._folder = folder
        self._sizes = sizes
        self._brokers = brokers
        self._begun = time.monotonic()
        self._runs = 0

    def run(self, row: str, variant: Variant) -> None:
        self._runs += 1
        folder = self._folder / f"run-{self._runs}"
        folder.mkdir()
        work = self._work(row, variant, folder)
        cores = wait_for_quiet(seconds_max=self._sizes.quiet_seconds_max)
        if cores > 1.0:
            print(f"other processes use {cores:.1f} cores: read no figure here as quiet")
        try:
            for result in self._results(work, variant):
                self._take(variant, result)
        except (PeerFailed, KafkaException, TimeoutError, OSError) as failure:
            reason = " ".join(str(failure).split())[-300:]
            self.failures.append(Failure(row=row, variant=variant.name, reason=reason))
            print(f"FAILED  {variant.name} {row}: {failure}", flush=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _results(self, work: Work, variant: Variant) -> Iterator[Result]:
        if variant == STREAMS:
            yield self._streams(work)
        elif work.row == RECOVERY:
            yield from self._recovery(work)
        else:
            with _Child(work) as child:
                child.wait(VARIANT_SECONDS_MAX)
                yield from child.results()

    def _recovery(self, work: Work) -> Iterator[Result]:
        with _Child(work) as first:
            first.wait_for_mark("state", VARIANT_SECONDS_MAX)
            first.kill_all()
        commits = _commit_files(work)
        spawned = time.time()
        with _Child(work) as again:
            others = Others([again.process.pid, *work.brokers])
            again.process.wait_until(
                lambda: bool(_commit_files(work) - commits),
                seconds_max=VARIANT_SECONDS_MAX,
                what="the first commit after the kill",
            )
            first_commit = time.time()
            cores = others.cores()
            marks = again.marks()
            again.kill_all()
        row = f"{work.row} with {work.warm_up / 1e6:g} M records of state"
        yield Result(row=row, metric="s", value=first_commit - spawned, other_cores=cores)
        started = marks.get("query", first_commit)
        row = f"{row}: after the start of the query"
        yield Result(row=row, metric="s", value=first_commit - started, other_cores=cores)

    def _streams(self, work: Work) -> Result:
        name = f"dedup-{uuid.uuid4().hex[:12]}"  # brokers may be kept from run to run
        create_topic(work.kafka, f"{name}-out", PARTITIONS)
        window_ms = 0 if work.row == DEDUP_EVER else WINDOW_MS
        command = [java_command(), "-Xms1g", "-Xmx2g", "-cp", program_class_path(), "DedupStreams"]
        command += [work.kafka, work.topic, f"{name}-out", name, f"{work.folder}/state"]
        command += [str(window_ms), str(work.per_trigger), str(work.records)]
        process = Process([*command, str(STREAMS_SECONDS_MAX)], log=Path(work.folder) / "log")
        others = Others([process.pid, *work.brokers])
        try:
            _wait_for_end(process, STREAMS_SECONDS_MAX + 60.0)
            lines = [line for line in process.log_text().splitlines() if line.startswith("{")]
            if not lines:
                raise PeerFailed(f"Kafka Streams: {process.log_text()[-600:]}")
            answer = json.loads(lines[-1])
        finally:
            process.kill()
        if answer["kept"] != work.ids:
            raise PeerFailed(f"{answer['kept']} rows came out, and there are {work.ids} ids")
        rate = answer["records"] / answer["seconds"]
        return Result(row=work.row, metric="rows/s", value=rate, other_cores=others.cores())

    def _work(self, row: str, variant: Variant, folder: Path) -> Work:
        brokers = self._brokers
        pids = {"kafka": brokers.kafka, "holdfast": brokers.holdfast}
        used = [pids[variant.uses].process.pid] if variant.uses in pids else []
        sizes = self._sizes
        return Work(
            row=row,
            variant=variant.name,
            folder=str(folder),
            store=brokers.holdfast.store,
            holdfast=brokers.holdfast.bootstrap,
            kafka=brokers.kafka.bootstrap,
            topic=TOPIC,
            ids=brokers.ids,
            brokers=used,
            records=sizes.records,
            warm_up=sizes.state_records if row == RECOVERY else sizes.warm_up,
            per_trigger=sizes.per_trigger // 10 if row == RECOVERY else sizes.per_trigger,
            seconds=sizes.latency_seconds,
        )

    def _take(self, variant: Variant, result: Result) -> None:
        self.measured.append(Measured(variant=variant.name, result=result))
        elapsed = time.monotonic() - self._begun
        print(
            f"{elapsed:6.0f} s  {variant.name:30} {result.row:42} {result.value:12,.1f}"
            f" {result.metric}, others {result.other_cores:.2f} cores",
            flush=True,
        )


class _Child:
    """A process with one variant; gone when the block ends."""

    def __init__(self, work: Work) -> None:
        text = msgspec.json.encode(work).decode()
        command = [sys.executable, "-m", "benchmarks.pipeline_jobs", text]
        self.process = Process(command, log=Path(work.folder) / "log")

    def __enter__(self) -> "_Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill_all()

    def wait(self, seconds_max: float) -> None:
        _wait_for_end(self.process, seconds_max)

    def wait_for_mark(self, name: str, seconds_max: float) -> None:
        self.process.wait_until(
            lambda: name in self.marks(), seconds_max=seconds_max, what=f"the mark {name}"
        )

    def marks(self) -> dict[str, float]:
        lines = [line.split() for line in self.process.log_text().splitlines()]
        return {line[1]: float(line[2]) for line in lines if line[:1] == [MARK.strip()]}

    def results(self) -> list[Result]:
        lines = self.process.log_text().splitlines()
        found = [
            msgspec.json.decode(line.removeprefix(RESULT), type=Result)
            for line in lines
            if line.startswith(RESULT)
        ]
        if not found:
            raise PeerFailed("\n".join(lines[-40:]))
        return found

    def kill_all(self) -> None:
        """SIGKILL the driver, its JVM and its workers: a JVM alone would end in good order."""
        for pid in family(self.process.pid)[1:]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.kill()


def _wait_for_end(process: Process, seconds_max: float) -> None:
    deadline = time.monotonic() + seconds_max
    while process.is_running():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not done in {seconds_max} s: {process.log_text()[-600:]}")
        time.sleep(0.05)


def _commit_files(work: Work) -> set[str]:
    """The names of all commits of a sink: of our ledger, or of the log of Spark's file sink."""
    lake = Path(work.folder) / "lake"
    logs = [*lake.glob("ledger/*/[0-9]*"), *lake.glob("_spark_metadata/[0-9]*")]
    return {path.name.partition(".")[0] for path in logs}


def main() -> int:
    arguments = _parser().parse_args()
    sizes = QUICK if arguments.quick else FULL
    repeats = arguments.repeats or (1 if arguments.quick else 3)
    chosen = {name: row for name, row in ROWS.items() if arguments.rows in name}
    try:
        program_class_path(), spark_kafka_jars()
    except PeerUnavailable as unavailable:
        print(f"not run: {unavailable}")
        return 2
    with tempfile.TemporaryDirectory(prefix="holdfast-pipeline-", dir=arguments.folder) as name:
        folder = Path(name)
        machine = describe_machine(folder, disk_writes=sizes.disk_writes)
        brokers = Brokers.start(Path(arguments.data or folder))
        try:
            begun = time.monotonic()
            brokers.fill(sizes.records)
            print(f"{sizes.records} records in both after {time.monotonic() - begun:.0f} s")
            session = Session(folder, sizes, brokers)
            for _ in range(repeats):
                for row, variants in chosen.items():
                    for variant in variants:
                        if arguments.only in variant.name:
                            session.run(row, variant)
        finally:
            brokers.stop()
    run = pipeline_report.Run(
        machine=machine,
        records=sizes.records,
        per_trigger=sizes.per_trigger,
        repeats=repeats,
        measured=tuple(session.measured),
        failures=tuple(session.failures),
    )
    for earlier in arguments.join:
        run = pipeline_report.joined(run, earlier.read_text())
    page = pipeline_report.markdown(run)
    print(page)
    complete = not (arguments.quick or arguments.rows or arguments.only)
    if complete or arguments.write:
        stem = f"pipeline-{machine.date}-{machine.commit}"
        report.keep(machine, "benchmarks-pipeline", page, stem, pipeline_report.as_json(run))
    return 1 if session.failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, one repeat: a smoke")
    parser.add_argument("--repeats", type=int, help="default 3, or 1 with --quick")
    parser.add_argument(
        "--rows", default="", help="rows whose name contains this: " + ", ".join(ROWS)
    )
    parser.add_argument("--only", default="", help="variants whose name contains this")
    parser.add_argument("--folder", help="where brokers and outputs go; default: the temp folder")
    parser.add_argument("--data", help="a folder for the filled brokers, kept for the next run")
    parser.add_argument(
        "--join",
        type=Path,
        action="append",
        default=[],
        metavar="JSON",
        help="add the values of an earlier run of this machine, from benchmarks/results",
    )
    parser.add_argument("--write", action="store_true", help="write the page of a partial run too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
