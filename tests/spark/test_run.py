"""`holdfast run` with a real Spark: files in, exactly once out, whatever a checkpoint does."""

import contextlib
import io
import json
import re
import shutil
import signal
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import pytest
from tests.peers.holdfast import HoldfastBroker
from tests.peers.process import wait_until
from tests.spark.commands import (
    RUN_S_MAX,
    SPARK_SMALL,
    chain_rows,
    holdfast,
    holdfast_json,
    landed,
    rows,
    started,
)
from tests.spark.pipelines import Here, written
from tests.support.topics import Topics

from holdfast.environment import SystemEnvironment
from holdfast.errors import ConfigurationError
from holdfast.live_text import CLEAR_LINE
from holdfast.spark.ledger.checkpoint_folder import local_folder
from holdfast.spark.ledger.ledger_sink import SinkRefused
from holdfast.spark.pipelines.file import read_pipeline
from holdfast.spark.pipelines.preflight import check_pipeline
from holdfast.spark.pipelines.progress import LiveLine
from holdfast.spark.pipelines.run import RunningPipeline

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture
def store(holdfast_broker: HoldfastBroker, topics: Topics, topic: str) -> str:
    topics.create(topic, 2)
    return holdfast_broker.store


def orders(*ids: str) -> list[bytes]:
    return [json.dumps({"id": name}).encode() for name in ids]


def source(store: str, topic: str) -> str:
    return f'[source]\nstore = "{store}"\nsubscribe = "{topic}"\n'


def dedup_file(folder: Path, store: str, topic: str) -> Path:
    return written(
        folder,
        source(store, topic)
        + '[dedup]\nby = "value.$.id"\nbuckets = 4\n'
        + '[output]\nto = "lake"\nsink_id = "orders"\n'
        + SPARK_SMALL,
    )


def ids(lake: Path) -> Counter[str]:
    return Counter(json.loads(row["value"])["id"] for row in rows(lake))


def once(*names: str) -> Counter[str]:
    return Counter(dict.fromkeys(names, 1))


def late_once(folder: Path) -> str:
    """A Python whose first planner of a stream comes later than Spark waits for it."""
    script, was_late = folder / "late-python", folder / "was-late"
    script.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *python_streaming_source_runner*)\n'
        f'  [ -e "{was_late}" ] || {{ touch "{was_late}"; sleep 12; }} ;;\n'
        f'esac\nexec "{sys.executable}" "$@"\n'
    )
    script.chmod(0o700)
    return str(script)


def task_daemons(driver: int) -> list[int]:
    """The daemons that fork the workers of tasks, below a driver."""
    parents: dict[int, int] = {}
    daemons: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            parents[int(folder.name)] = int(
                (folder / "stat").read_text().rpartition(")")[2].split()[1]
            )
            line = (folder / "cmdline").read_bytes()
            if b"holdfast.spark.runtime.daemon\0pyspark.worker" in line:
                daemons.append(int(folder.name))
    javas = {pid for pid, parent in parents.items() if parent == driver}
    return [pid for pid in daemons if parents[pid] in javas]


def test_dedup_into_parquet_is_exactly_once_and_a_deleted_checkpoint_is_recovered(
    spark: Any, store: str, topics: Topics, topic: str, tmp_path: Path
):
    topics.produce(topic, orders("a", "b", "a", "c"), partition=0)
    topics.produce(topic, orders("b", "d"), partition=1)
    file = dedup_file(tmp_path, store, topic)
    said = holdfast("run", str(file), "--once", PYSPARK_PYTHON=late_once(tmp_path))
    assert "did not start within 10 s: starting the query again" in said
    for part in (
        "rows in     6",
        "kept        4",
        "duplicates  2",
        "holdfast landed",
        "a first run",
    ):
        assert part in said
    assert ids(tmp_path / "lake") == once("a", "b", "c", "d")
    shutil.rmtree(tmp_path / "lake.checkpoints")
    topics.produce(topic, orders("a", "e"), partition=1)
    job = Here(spark, file)
    assert job.run().counts["rows"] == 2
    assert "the checkpoint is new: continuing after entry 0 of the ledger" in job.began
    assert ids(tmp_path / "lake") == once("a", "b", "c", "d", "e")


@pytest.mark.parametrize("number", [signal.SIGTERM])
def test_chains_are_landed_until_a_signal_to_the_whole_group_and_the_run_ends_cleanly(
    holdfast_broker: HoldfastBroker,
    topics: Topics,
    topic: str,
    tmp_path: Path,
    number: signal.Signals,
):
    topics.create(topic, 2)
    topics.produce(topic, [f"a{i}" for i in range(50)], partition=0)
    file = written(
        tmp_path,
        f'[source]\nkafka.bootstrap.servers = "{holdfast_broker.bootstrap}"\n'
        f'subscribe = "{topic}"\n[output]\nto = "lake"\ntrigger = "200 ms"\n' + SPARK_SMALL,
    )
    process = started("run", str(file), log=tmp_path / "run.log")
    try:
        process.wait_until(
            lambda: "50 rows" in process.log_text(), seconds_max=RUN_S_MAX, what="first rows"
        )
        topics.produce(topic, [f"b{i}" for i in range(30)], partition=1)
        process.wait_until(
            lambda: "total 80" in process.log_text(), seconds_max=RUN_S_MAX, what="all rows"
        )
        assert len(task_daemons(process.pid)) == 1
        assert process.end_by(number) == 0, process.log_text()
    finally:
        process.kill()
    said = process.log_text()
    assert "stopped after a micro-batch" in said
    assert "rows in     80" in said
    for noise in ("py4j", "Py4J", "KeyboardInterrupt", "Task was destroyed"):
        assert noise not in said
    found = [
        (row["partition"], row["offset"], row["value"]) for row in chain_rows(tmp_path / "lake")
    ]
    assert found == [
        *((0, i, b"a%d" % i) for i in range(50)),
        *((1, i, b"b%d" % i) for i in range(30)),
    ]


def test_a_broker_that_is_killed_under_an_idle_run_is_told_and_so_is_its_return(tmp_path: Path):
    broker = HoldfastBroker(tmp_path / "broker").start()
    topics = Topics(broker.bootstrap)
    topics.create("orders", 1)
    topics.produce("orders", ["a", "b"])
    file = written(
        tmp_path,
        f'[source]\nkafka.bootstrap.servers = "{broker.bootstrap}"\n'
        'subscribe = "orders"\n[output]\nto = "lake"\n' + SPARK_SMALL,
    )
    process = started("run", str(file), log=tmp_path / "run.log")

    def await_line(text: str) -> None:
        process.wait_until(
            lambda: text in process.log_text(), seconds_max=RUN_S_MAX, what=f"the line {text!r}"
        )

    try:
        await_line("total 2")
        broker.kill()
        await_line("the source does not answer; trying again")
        broker.start()
        await_line("the source answers again")
        topics.produce("orders", ["c"])
        await_line("total 3")
        assert process.end_by(signal.SIGINT) == 0, process.log_text()
    finally:
        process.kill()
        broker.stop()


def test_ctrl_c_while_spark_starts_ends_the_run_before_it_has_begun(
    holdfast_broker: HoldfastBroker, topics: Topics, topic: str, tmp_path: Path
):
    topics.create(topic, 1)
    file = written(
        tmp_path,
        f'[source]\nkafka.bootstrap.servers = "{holdfast_broker.bootstrap}"\n'
        f'subscribe = "{topic}"\n[output]\nto = "lake"\n' + SPARK_SMALL,
    )
    process = started("run", str(file), log=tmp_path / "run.log")

    def has_java_printed() -> bool:
        named = re.search(r"Spark's log: (\S+)", process.log_text())
        return named is not None and Path(named[1]).stat().st_size > 0

    try:
        process.wait_until(has_java_printed, seconds_max=RUN_S_MAX, what="a word of Spark")
        assert process.end_by(signal.SIGINT) == 0, process.log_text()
    finally:
        process.kill()
    said = process.log_text()
    assert "stopped before the first micro-batch" in said
    for noise in ("Traceback", "py4j", "Py4J", "KeyboardInterrupt", "Aborted"):
        assert noise not in said


def test_a_dry_run_says_what_would_be_done_and_leaves_nothing_behind(
    holdfast_broker: HoldfastBroker, topics: Topics, topic: str, tmp_path: Path
):
    topics.create(topic, 2)
    topics.produce(topic, ["a", "b"])
    file = written(
        tmp_path,
        f'[source]\nkafka.bootstrap.servers = "{holdfast_broker.bootstrap}"\n'
        f'subscribe = "{topic}"\n[timers]\nby = "key"\nafter = "1 hour"\n'
        '[output]\nto = "lake"\nsink_id = "silent"\n[delta]\n',
    )
    said = holdfast("run", str(file), "--dry-run").splitlines()
    assert said[0].endswith("2 partitions, 2 records")
    assert said[1] == "timers      a row for each key without events for 3,600 s"
    assert said[-1] == "all checks passed; nothing was started"
    assert len(said) == 8, "nothing but what was asked for"
    assert [path.name for path in tmp_path.iterdir()] == ["p.toml"]


def test_a_python_file_transforms_and_its_columns_make_folders(
    spark: Any, store: str, topics: Topics, topic: str, tmp_path: Path
):
    topics.produce(topic, orders("a", "b", "a", "c"), partition=0)
    options = {
        "source": {"store": store, "subscribe": topic},
        "dedup": {"by": "id"},
        "output": {"to": "lake", "sink_id": "letters", "partition_by": "letter"},
    }
    file = written(
        tmp_path,
        f"""
from pyspark.sql.functions import col, get_json_object, udf

print("this file is loaded")

OPTIONS = {options!r}

def louder(text):
    return text.upper() + "!"

def pipeline(frame):
    frame = frame.select(get_json_object(col("value").cast("string"), "$.id").alias("id"))
    return frame.where("id <> 'c'").withColumn("letter", udf(louder)("id"))
""",
        name="letters.py",
    )
    events, said = holdfast_json("run", str(file), "--once")
    assert "this file is loaded" in said, "standard output is for events"
    assert [event["event"] for event in events] == ["batch", "summary"]
    batch, summary = events
    assert batch["counts"]["duplicates"] == summary["counts"]["duplicates"] == 1
    assert (batch["total_rows"], batch["lag"], summary["lag"]) == (3, 0, 0)
    assert (summary["ended"], summary["output"]) == ("complete", str(tmp_path / "lake"))
    files = landed(tmp_path / "lake")["sinks"][0]["files"]
    assert {file["partition_values"]["letter"] for file in files} == {"A!", "B!"}
    assert Counter(row["id"] for row in rows(tmp_path / "lake")) == once("a", "b")


def test_the_example_of_aggregates_counts_each_order_and_its_table_follows(
    spark: Any, store: str, topics: Topics, topic: str, tmp_path: Path
):
    overrides = (f"source.store={store}", f"source.subscribe={topic}", f"output.to={tmp_path}/lake")
    job = Here(spark, EXAMPLES / "order_totals.toml", log=tmp_path / "log")

    def send(*names: str) -> None:
        sent = [json.dumps({"id": name, "amount": i}).encode() for i, name in enumerate(names)]
        topics.produce(topic, sent)

    send("a", "b", "a")
    assert job.run(*overrides).counts["updated"] == 2
    send("c", "a")
    assert job.run(*overrides).counts["updated"] == 2
    newest: dict[str, tuple[int, int]] = {}
    for row in sorted(rows(tmp_path / "lake"), key=lambda row: row["_entry"]):
        newest[row["id"]] = (row["times_sent"], row["amount"])
    assert newest == {"a": (3, 1), "b": (1, 1), "c": (1, 0)}
    table = deltalake.DeltaTable(str(tmp_path / "lake" / "data" / "order-totals"))
    assert sorted(table.to_pyarrow_table()["times_sent"].to_pylist()) == [1, 1, 2, 3]


def test_a_timer_fires_once_in_a_run_that_has_no_records(
    spark: Any, store: str, topics: Topics, topic: str, tmp_path: Path
):
    topics.produce(topic, ["a", "b"])
    file = written(
        tmp_path,
        source(store, topic)
        + 'tickInterval = "1ms"\n[timers]\nby = "key"\nafter = "1 ms"\nbuckets = 2\n'
        + '[output]\nto = "lake"\nsink_id = "silent"\n',
    )
    job = Here(spark, file)
    assert job.run().counts["fired"] == 0
    found = job.run().counts
    assert (found["rows"], found["fired"]) == (0, 2)
    job.run()
    assert sorted(row["key"] for row in rows(tmp_path / "lake")) == [b"k0", b"k1"]


def test_a_column_that_the_transform_does_not_give_is_told_before_the_query_starts(
    spark: Any, store: str, topic: str, tmp_path: Path
):
    written(tmp_path, "def pipeline(frame):\n    return frame.select('value')\n", name="narrow.py")
    file = written(
        tmp_path,
        source(store, topic)
        + '[transform]\npython = "narrow.py"\n[dedup]\nby = "key"\n'
        + '[output]\nto = "lake"\nsink_id = "s"\n',
    )
    with pytest.raises(ConfigurationError, match=r"no column 'key'.*; there are value"):
        Here(spark, file).run()
    assert not (tmp_path / "lake.checkpoints").exists()


def test_an_old_checkpoint_is_refused_with_the_command_that_helps(
    spark: Any, store: str, topics: Topics, topic: str, tmp_path: Path
):
    job = Here(spark, dedup_file(tmp_path, store, topic))
    checkpoint = tmp_path / "lake.checkpoints"
    topics.produce(topic, orders("a"))
    job.run()
    shutil.copytree(checkpoint, tmp_path / "copy")
    for name in ("b", "c"):
        topics.produce(topic, orders(name))
        job.run()
    shutil.rmtree(checkpoint)
    shutil.copytree(tmp_path / "copy", checkpoint)
    topics.produce(topic, orders("d"))
    with pytest.raises(SinkRefused, match=r"holdfast run p\.toml --reset-checkpoint"):
        job.run()
    folder = local_folder(str(checkpoint / "orders"))
    assert folder is not None
    assert folder.set_aside("old") == str(checkpoint / "orders.old")
    assert job.run().counts["rows"] == 1
    assert ids(tmp_path / "lake") == once("a", "b", "c", "d")


def test_chains_go_on_by_themselves_without_their_checkpoint(
    spark: Any, store: str, topics: Topics, topic: str, tmp_path: Path
):
    file = written(tmp_path, source(store, topic) + '[output]\nto = "lake"\n')
    job = Here(spark, file)
    topics.produce(topic, ["a", "b"], partition=0)
    assert job.run().counts["rows"] == 2
    shutil.rmtree(tmp_path / "lake.checkpoints")
    topics.produce(topic, ["c"], partition=0)
    topics.produce(topic, ["d"], partition=1)
    assert job.run("source.startingOffsets=latest").counts["rows"] == 2
    assert [row["value"] for row in chain_rows(tmp_path / "lake")] == [b"a", b"b", b"c", b"d"]


def test_an_idle_run_says_since_when_and_how_many_records_wait_for_the_trigger(
    spark: Any, store: str, topics: Topics, topic: str, tmp_path: Path
):
    topics.produce(topic, ["a", "b"])
    # Spark begins micro-batches at multiples of the interval: one hour may be over in a moment.
    file = written(tmp_path, source(store, topic) + '[output]\nto = "lake"\ntrigger = "300 days"\n')
    pipeline = read_pipeline(file)
    ready = check_pipeline(pipeline)
    environment = SystemEnvironment()
    run = RunningPipeline(spark, pipeline, begin=None, source=ready.source, environment=environment)
    screen, stop = io.StringIO(), threading.Event()
    watching = threading.Thread(target=run.watch, args=(stop, LiveLine(screen)))
    watching.start()

    def shows(*parts: str) -> None:
        def is_shown() -> bool:
            last = screen.getvalue().rpartition(CLEAR_LINE)[2]
            return all(part in last for part in parts)

        wait_until(is_shown, seconds_max=RUN_S_MAX, what=f"a line with {parts}")

    try:
        shows("idle since 2", "lag 0 records, total 2")
        topics.produce(topic, ["c", "d", "e"])
        shows("waiting since 2", "lag 3 records, total 2")
    finally:
        stop.set()
        watching.join(RUN_S_MAX)
    assert not watching.is_alive()
    assert "batch 0: 2 rows" in screen.getvalue()
    assert run.totals.lag == 3
