"""`python -m benchmarks.broker`: Holdfast and Apache Kafka, interleaved and repeated.

Each broker runs alone while it is measured, in a fresh folder that is removed afterwards. A full
run of everything writes docs/reference/benchmarks.md and a JSON file under benchmarks/results.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.peers.jars import PeerUnavailable

from benchmarks import report
from benchmarks.machine import describe_machine
from benchmarks.rows import FULL, QUICK, Workload, start_up
from benchmarks.session import Row, Session
from benchmarks.variants import VARIANTS, Broker, Variant, add_options, variants_named

INTRODUCTION = """\
# Benchmarks

Throughput, CPU, latency, start-up time and PUT requests of one Holdfast broker and one Apache
Kafka broker. `make bench` writes this page; do not edit it. [How to run the
benchmarks](../how-to/run-the-benchmarks.md) explains each row.

Each cell is the median of the repeats; the lowest and the highest value are in brackets. The
brokers took turns on the same machine, with the same clients, and each ran alone. The topics had
six partitions; the producers were idempotent and used acks=all. MB and GB are decimal and count
record values only.
"""


def main() -> int:
    arguments = _parser().parse_args()
    sizes = QUICK if arguments.quick else FULL
    repeats = arguments.repeats or (1 if arguments.quick else 3)
    chosen = variants_named(arguments.only)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=arguments.folder) as folder:
        machine = describe_machine(Path(folder), disk_writes=sizes.disk_writes)
        session = Session(Path(folder), arguments.rows)
        java_records: dict[str, int] = {}

        def rows_of(variant: Variant, broker: Broker) -> list[tuple[str, Row]]:
            return Workload(variant, broker, sizes, java_records).rows()

        try:
            for _ in range(repeats):
                for variant in chosen:
                    session.run_rows(variant, rows_of)
            for variant in chosen:
                if variant.start_up:
                    session.run_alone(
                        "start-up", variant, lambda folder, v=variant: start_up(v, folder, sizes)
                    )
        except PeerUnavailable as unavailable:
            print(f"not run: {unavailable}")
            return 2
    page = report.markdown(INTRODUCTION, machine, session.samples, session.failures, repeats)
    print(page)
    complete = not arguments.quick and len(chosen) == len(VARIANTS) and not arguments.rows
    if complete or arguments.write:
        result = report.as_json(machine, session.samples, session.failures, repeats)
        report.keep(machine, "benchmarks", page, f"{machine.date}-{machine.commit}", result)
    return 1 if session.failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.broker", description=__doc__)
    add_options(parser)
    parser.add_argument("--rows", default="", help="rows whose name contains this, or start-up")
    parser.add_argument("--write", action="store_true", help="write the page of a partial run too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
