"""Spark as all variants have it, the readers that are compared, and what their sinks committed.

Every variant gets the same session settings, those of `holdfast.spark.runtime.session` (which are
good for Spark's own operators as well), and two cores. Owns no measurement.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.peers.jars import spark_kafka_jars

import holdfast.spark
from benchmarks.pipeline_work import (
    KAFKA_OF_HOLDFAST,
    KAFKA_OF_KAFKA,
    KAFKA_RANGES,
    SPARK_TRACKED,
    STOCK,
    STORE,
    STORE_RANGES,
    Work,
)
from holdfast.landing.ledger_entry import Entry, decode_entry

SINK_ID = "bench"
OURS = tuple(v.name for v in (STORE, STORE_RANGES, KAFKA_OF_HOLDFAST, KAFKA_OF_KAFKA, KAFKA_RANGES))
TRACKED = "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows"


def session(work: Work) -> Any:
    """A session of its own JVM, with Spark's Kafka source where it is needed."""
    config = {
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.warehouse.dir": f"{work.folder}/warehouse",
        "spark.local.dir": f"{work.folder}/spark",
        TRACKED: str(work.variant == SPARK_TRACKED.name).lower(),
    }
    if work.variant not in OURS:
        config["spark.jars"] = ",".join(str(jar) for jar in spark_kafka_jars())
    return holdfast.spark.session("local[2]", app_name=work.variant, config=config)


def source(work: Work, *, topic: str | None = None) -> tuple[str, dict[str, str]]:
    """The format and the options that name the input of a variant."""
    options = {"subscribe": topic or work.topic}
    if work.variant in (STORE.name, STORE_RANGES.name):
        options["store"] = work.store
    elif work.variant == KAFKA_OF_HOLDFAST.name:
        options["kafka.bootstrap.servers"] = work.holdfast
    else:
        options["kafka.bootstrap.servers"] = work.kafka
    if work.variant in (STORE_RANGES.name, KAFKA_RANGES.name):
        options["rows"] = "ranges"
    if work.variant in OURS:
        return "holdfast", options
    if work.variant != STOCK.name:
        options["kafka.max.poll.records"] = "10000"
    return "kafka", options


def stream(spark: Any, work: Work, options: Mapping[str, str], *, topic: str | None = None) -> Any:
    name, where = source(work, topic=topic)
    reader = spark.readStream.format(name).options(**where, startingOffsets="earliest")
    return reader.options(**options).load()


class LedgerCommits:
    """What a ledgered sink of ours has committed, and when."""

    def __init__(self, lake: Path) -> None:
        self._lake = lake

    def count(self) -> int:
        folder = self._lake / "ledger" / SINK_ID
        return len([p for p in folder.glob("[0-9]*") if p.name.isdigit()])

    def entries(self) -> list[tuple[float, Entry]]:
        """Each entry with the time since which it is visible."""
        paths = [self._lake / "ledger" / SINK_ID / f"{n:020d}" for n in range(self.count())]
        return [
            # Linking the file under its name is what changes its status last.
            (path.stat().st_ctime, _entry(path))
            for path in paths
        ]

    def files(self) -> list[tuple[float, list[Path]]]:
        return [(at, [self._lake / f.path for f in e.files]) for at, e in self.entries()]

    def rows(self) -> int:
        return sum(entry.counts.get("rows", 0) for _, entry in self.entries())


class FileSinkCommits:
    """What Spark's file sink has committed, and when: a file of its log for each micro-batch."""

    def __init__(self, output: Path) -> None:
        self._output = output

    def logs(self) -> list[Path]:
        found: dict[int, Path] = {}
        for path in (self._output / "_spark_metadata").glob("[0-9]*"):
            found[int(path.name.partition(".")[0])] = path
        return [found[n] for n in sorted(found)]

    def count(self) -> int:
        logs = self.logs()
        return int(logs[-1].name.partition(".")[0]) + 1 if logs else 0

    def files(self) -> list[tuple[float, list[Path]]]:
        seen: set[str] = set()
        found: list[tuple[float, list[Path]]] = []
        for log in self.logs():
            named = [json.loads(line)["path"] for line in log.read_text().splitlines()[1:]]
            new = [path for path in named if path not in seen]
            seen.update(new)
            found.append((log.stat().st_ctime, [Path(p.removeprefix("file:")) for p in new]))
        return found


class FolderCommits:
    """A folder for each micro-batch, complete when Spark has marked it so."""

    def __init__(self, output: Path) -> None:
        self._output = output

    def files(self) -> list[tuple[float, list[Path]]]:
        folders = [path.parent for path in self._output.glob("*/_SUCCESS")]
        return [
            ((folder / "_SUCCESS").stat().st_ctime, sorted(folder.glob("*.parquet")))
            for folder in sorted(folders, key=lambda folder: int(folder.name))
        ]


def _entry(path: Path) -> Entry:
    return decode_entry(path.read_bytes(), sink_id=SINK_ID, n=int(path.name)).entry
