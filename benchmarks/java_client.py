"""The Java client's side: Kafka's own ProducerPerformance, and our assign()-based reader."""

import json
import re
import subprocess
from dataclasses import dataclass

from tests.peers.jars import java_command, program_class_path

RUN_SECONDS_MAX = 240
HEAP = ("-Xms512m", "-Xmx512m")
SUMMARY = re.compile(
    r"^(?P<records>\d+) (?:steady state )?records sent, (?P<rate>[\d.]+) records/sec .*?"
    r"(?P<p50>\d+) ms 50th, (?P<p95>\d+) ms 95th, (?P<p99>\d+) ms 99th"
)


class ClientFailed(Exception):
    """A client did not do its work: the row has no figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    records_per_second: float
    p50_ms: float
    p99_ms: float


def produce(
    bootstrap: str,
    topic: str,
    *,
    records: int,
    record_bytes: int,
    codec: str = "none",
    records_per_second: int = -1,
    warm_up_records: int = 0,
) -> Produced:
    """ProducerPerformance: acks=all, idempotent, the client's own batch size and linger."""
    arguments = [
        *("--bootstrap-server", bootstrap, "--topic", topic),
        *("--num-records", str(records), "--record-size", str(record_bytes)),
        *("--throughput", str(records_per_second), "--reporting-interval", "600000"),
        *("--command-property", "acks=all", "enable.idempotence=true"),
        f"compression.type={codec}",
    ]
    if warm_up_records:
        arguments += ["--warmup-records", str(warm_up_records)]
    printed = _run("org.apache.kafka.tools.ProducerPerformance", *arguments)
    # With a warm-up there are two summaries, and the last one leaves the warm-up out.
    found = [match for line in printed.splitlines() if (match := SUMMARY.match(line))]
    if not found:
        raise ClientFailed(f"ProducerPerformance printed no summary: {printed[-400:]}")
    last = found[-1]
    return Produced(
        records_per_second=float(last["rate"]),
        p50_ms=float(last["p50"]),
        p99_ms=float(last["p99"]),
    )


def consume(bootstrap: str, topic: str, *, partitions: int, records: int) -> float:
    """Bytes of values per second, over all partitions from the beginning."""
    arguments = (bootstrap, topic, str(partitions), str(records), str(RUN_SECONDS_MAX - 20))
    result = json.loads(_run("ConsumeBench", *arguments).splitlines()[-1])
    return result["bytes"] / result["seconds"]


def _run(main: str, *arguments: str) -> str:
    command = [java_command(), *HEAP, "-cp", program_class_path(), main, *arguments]
    try:
        run = subprocess.run(
            command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        raise ClientFailed(f"{main} did not end within {RUN_SECONDS_MAX} s") from None
    if run.returncode != 0 or "Exception" in run.stdout:
        raise ClientFailed(f"{main}: {run.stdout[-400:]} {run.stderr[-400:]}")
    return run.stdout
