"""`python -m benchmarks.sink`: topics into an S3 server, beside Redpanda Connect and a script.

The sinks take turns: each copies the same topic of one Apache Kafka to one S3 server, as objects of
JSON lines under zstd that close after 50 MiB or one minute. The rate follows the committed offsets,
from the first commit until 90 % are committed, so start-up time does not count. A full run writes
docs/reference/benchmarks-sink.md and a JSON file under benchmarks/results.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.peers.jars import PeerUnavailable, redpanda_connect
from tests.peers.kafka import KAFKA_DEFAULT_HEAP, KafkaBroker
from tests.peers.process import Process
from tests.peers.seaweedfs import REGION, SeaweedFs

from benchmarks import report
from benchmarks.machine import describe_machine
from benchmarks.samples import (
    CPU_OF_MILLION,
    FIRST_COMMIT,
    LANDED,
    MEMORY,
    RECORDS,
    Sample,
)

PARTITIONS = 6
SHARE = 0.9
SECONDS_MAX = 300.0
LOOK_S = 0.1
MIB = 1024 * 1024
DISK_WRITES = 60
SIZES = (200, 1024)
COMPARED = report.Compared(
    titles={
        "holdfast": "`holdfast sink` with its defaults, one member",
        "redpanda-connect": "Redpanda Connect 4.61.0, input `kafka_franz`: batches of 50 MiB or one"
        " minute, `checkpoint_limit` 1, up to 10 uploads at once",
        "script": "a plain script (`benchmarks/sink_script.py`): confluent-kafka's `consume()`,"
        " then lines, zstd and one PUT",
    },
    ratios=(("holdfast", "redpanda-connect"), ("holdfast", "script")),
)
INTRODUCTION = """\
# Benchmarks of the sink

How fast three sinks copy a topic to S3. `make bench-sink` writes this page; do not edit it.

The sinks took turns, each alone. All read the same topic (1.5 GB of JSON records, six partitions)
from the same Apache Kafka and wrote to the same S3 server (SeaweedFS): objects of JSON lines
under zstd, closed after 50 MiB or one minute. Kafka and the S3 server shared the two cores with
the sink.

- Rates follow the committed offsets, from the first commit until 90 % of the topic is committed.
- Memory and CPU are those of the sink's process.
- Each cell is the median of the repeats; the lowest and the highest value are in brackets.

The Kafka Connect S3 sink is missing: its artifact was not in the package registry that was at
hand.
"""

CONNECT = """
http: {{ enabled: false }}
input:
  kafka_franz:
    seed_brokers: ["{bootstrap}"]
    topics: ["{topic}"]
    consumer_group: "{group}"
    start_from_oldest: true
    checkpoint_limit: 1
    batching:
      byte_size: 52428800
      period: "1m"
pipeline:
  processors:
    - archive: {{ format: lines }}
    - compress: {{ algorithm: zstd }}
output:
  aws_s3:
    bucket: "{bucket}"
    path: '{group}/{path}'
    max_in_flight: 10
    region: "{region}"
    endpoint: "{endpoint}"
    force_path_style_urls: true
    credentials: {{ id: "{key}", secret: "{secret}" }}
"""

CONNECT_PATH = "+".join(
    f'${{!meta("{part}")}}' for part in ("kafka_topic", "kafka_partition", "kafka_offset")
)

HOLDFAST = """
[source]
bootstrap.servers = "{bootstrap}"
group.id = "{group}"
topics = ["{topic}"]

[output]
to = "{store}"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What every sink is given."""

    folder: Path
    kafka: KafkaBroker
    server: SeaweedFs
    topic: str
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run of one sink."""

    sink: str
    record_bytes: int
    records_per_second: float
    megabytes_per_second: float
    seconds_to_first_commit: float
    memory_mib: float
    cpu_seconds_per_million: float


def _connect(place: Place) -> Process:
    config = place.folder / f"{place.group}.yaml"
    config.write_text(
        CONNECT.format(
            bootstrap=place.kafka.bootstrap,
            topic=place.topic,
            group=place.group,
            path=f"{CONNECT_PATH}.jsonl.zst",
            bucket=place.server.bucket,
            endpoint=place.server.endpoint,
            region=REGION,
            key=place.server.access_key,
            secret=place.server.secret_key,
        )
    )
    command = [str(redpanda_connect()), "run", str(config)]
    return Process(command, log=place.folder / f"{place.group}.log")


def _holdfast(place: Place) -> Process:
    config = place.folder / f"{place.group}.toml"
    config.write_text(
        HOLDFAST.format(
            bootstrap=place.kafka.bootstrap,
            topic=place.topic,
            group=place.group,
            store=place.server.url(place.group),
        )
    )
    command = [str(Path(sys.executable).parent / "holdfast"), "sink", str(config)]
    return Process(
        command, log=place.folder / f"{place.group}.log", environment=place.server.variables
    )


def _script(place: Place) -> Process:
    command = [sys.executable, "-m", "benchmarks.sink_script", place.kafka.bootstrap]
    command += [place.topic, place.group, place.server.url(place.group)]
    return Process(
        command, log=place.folder / f"{place.group}.log", environment=place.server.variables
    )


SINKS: dict[str, Callable[[Place], Process]] = {
    "holdfast": _holdfast,
    "redpanda-connect": _connect,
    "script": _script,
}


def fill(bootstrap: str, topic: str, record_bytes: int, total_bytes: int) -> int:
    """A topic of JSON records that compress as such records do; how many there are."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    chance = Random(1)
    samples = [_record(chance, number, record_bytes) for number in range(20_000)]
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 500_000,
        }
    )
    count = total_bytes // record_bytes
    for number in range(count):
        while True:
            try:
                producer.produce(
                    topic, value=samples[number % len(samples)], partition=number % PARTITIONS
                )
                break
            except BufferError:
                producer.poll(0.05)
        if number % 5_000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("the topic could not be filled")
    return count


def _record(chance: Random, number: int, size: int) -> bytes:
    known = {
        "id": f"{chance.getrandbits(64):016x}",
        "n": number,
        "user": f"user-{chance.randrange(5_000)}",
        "event": chance.choice(["view", "click", "order", "return"]),
        "amount": round(chance.uniform(1, 900), 2),
        "tags": [],
    }
    words = known["tags"]
    while len(json.dumps(known)) < size - 8:
        words.append(f"w{chance.randrange(3_000)}")
    return json.dumps(known)[:-2].ljust(size - 2)[: size - 2].encode() + b"]}"


def measure(name: str, place: Place, *, count: int, record_bytes: int) -> Measured:
    """Run one sink until most of the topic is committed."""
    admin = AdminClient({"bootstrap.servers": place.kafka.bootstrap})
    begun = time.monotonic()
    process = SINKS[name](place)
    samples: list[tuple[float, int]] = []
    memory = 0
    try:
        while not samples or samples[-1][1] < SHARE * count:
            if time.monotonic() - begun > SECONDS_MAX or not process.is_running():
                said = process.log_text()[-1_500:]
                raise RuntimeError(f"{name}: {samples[-1:]} of {count} committed: {said}")
            memory = max(memory, process.memory_bytes())
            committed = _committed(admin, place.group)
            if committed:
                samples.append((time.monotonic(), committed))
            time.sleep(LOOK_S)
        cpu = process.cpu_seconds()
    finally:
        process.kill()
    (first_at, first), (last_at, last) = samples[0], samples[-1]
    rate = (last - first) / max(LOOK_S, last_at - first_at)
    return Measured(
        sink=name,
        record_bytes=record_bytes,
        records_per_second=rate,
        megabytes_per_second=rate * record_bytes / 1e6,
        seconds_to_first_commit=first_at - begun,
        memory_mib=memory / MIB,
        cpu_seconds_per_million=cpu / last * 1e6,
    )


def _committed(admin: AdminClient, group: str) -> int:
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    try:
        found = asked[group].result(20)
    except Exception:  # there is no such group yet
        return 0
    return sum(max(0, part.offset) for part in found.topic_partitions)


@contextmanager
def servers(folder: Path) -> Iterator[tuple[KafkaBroker, SeaweedFs]]:
    kafka = KafkaBroker(folder / "kafka", jvm_options=KAFKA_DEFAULT_HEAP).start()
    try:
        with SeaweedFs(folder / "weed") as server:
            yield kafka, server
    finally:
        kafka.stop()


def samples_of(measured: Measured) -> list[Sample]:
    """The rows of one run."""
    row = f"records of {measured.record_bytes:,} B"
    values = (
        (RECORDS, measured.records_per_second),
        (LANDED, measured.megabytes_per_second),
        (MEMORY, measured.memory_mib),
        (CPU_OF_MILLION, measured.cpu_seconds_per_million),
        (FIRST_COMMIT, measured.seconds_to_first_commit),
    )
    return [
        Sample(metric=metric, row=row, variant=measured.sink, value=value)
        for metric, value in values
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sink", description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--sinks", nargs="*", default=list(SINKS), choices=list(SINKS))
    parser.add_argument("--mib", type=int, default=1_500, help="of records in the topic")
    given = parser.parse_args()
    samples: list[Sample] = []
    sinks = [name for name in given.sinks if name != "redpanda-connect" or _is_there()]
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-sink-") as name:
        machine = describe_machine(Path(name), disk_writes=DISK_WRITES)
        for size in given.sizes:
            folder = Path(name) / str(size)
            folder.mkdir()
            with servers(folder) as (kafka, server):
                topic = f"records-{size}"
                count = fill(kafka.bootstrap, topic, size, given.mib * MIB)
                for number in range(given.repeats):
                    for sink in sinks:
                        group = f"{sink}-{size}-{number}"
                        place = Place(
                            folder=folder, kafka=kafka, server=server, topic=topic, group=group
                        )
                        measured = measure(sink, place, count=count, record_bytes=size)
                        print(measured, file=sys.stderr, flush=True)
                        samples += samples_of(measured)
            shutil.rmtree(folder)
    page = report.markdown(INTRODUCTION, machine, samples, [], given.repeats, COMPARED)
    print(page)
    if sinks == list(SINKS) and given.sizes == list(SIZES):
        result = report.as_json(machine, samples, [], given.repeats)
        report.keep(
            machine, "benchmarks-sink", page, f"sink-{machine.date}-{machine.commit}", result
        )


def _is_there() -> bool:
    try:
        redpanda_connect()
    except PeerUnavailable as unavailable:
        print(unavailable, file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    main()
