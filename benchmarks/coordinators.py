"""`python -m benchmarks.coordinators`: groups and transactions of Holdfast and Apache Kafka,
interleaved and repeated.

A full run writes docs/reference/benchmarks-coordinators.md and a JSON file under
benchmarks/results.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.peers.jars import PeerUnavailable

from benchmarks import report
from benchmarks.coordinator_rows import FULL, QUICK, Workload
from benchmarks.machine import describe_machine
from benchmarks.session import Session
from benchmarks.variants import VARIANTS, add_options, variants_named

DISK_WRITES = 60
INTRODUCTION = """\
# Benchmarks of groups and transactions

Rebalances, offset commits and transactions on one Holdfast broker and one Apache Kafka broker.
`make bench-coordinators` writes this page; do not edit it. [How to run the
benchmarks](../how-to/run-the-benchmarks.md#groups-and-transactions) explains each row.

Each cell is the median of the repeats; the lowest and the highest value are in brackets. The
brokers took turns on the same machine, with the same client (librdkafka), and each ran alone.
"""


def main() -> int:
    arguments = _parser().parse_args()
    sizes = QUICK if arguments.quick else FULL
    repeats = arguments.repeats or (1 if arguments.quick else 3)
    chosen = variants_named(arguments.only)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=arguments.folder) as folder:
        machine = describe_machine(Path(folder), disk_writes=DISK_WRITES)
        session = Session(Path(folder), arguments.rows)
        try:
            for _ in range(repeats):
                for variant in chosen:
                    session.run_rows(variant, lambda v, b: Workload(v, b, sizes).rows())
        except PeerUnavailable as unavailable:
            print(f"not run: {unavailable}")
            return 2
    page = report.markdown(INTRODUCTION, machine, session.samples, session.failures, repeats)
    print(page)
    if not arguments.quick and len(chosen) == len(VARIANTS) and not arguments.rows:
        result = report.as_json(machine, session.samples, session.failures, repeats)
        stem = f"coordinators-{machine.date}-{machine.commit}"
        report.keep(machine, "benchmarks-coordinators", page, stem, result)
    return 1 if session.failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coordinators", description=__doc__)
    add_options(parser)
    parser.add_argument("--rows", default="", help="rows whose name contains this")
    return parser


if __name__ == "__main__":
    sys.exit(main())
