"""The driver program that chaos kills: one pipeline on a Spark of its own, run without an end.

`python -m tests.chaos.spark_driver PLAN.json`. It starts Spark, says that it is warm, waits until
it is told to go, and then runs until it is killed or its query ends by itself; then it writes why.
Told to rest, it stops its query, and waits for another one.
What goes wrong on purpose comes from tests.chaos.spark_variants, never from the product.
"""

import itertools
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

EXIT_REFUSED = 3
GO_SECONDS_MAX = 1800.0
"""Whoever started this driver may have been killed."""
REST_LOOK_S = 0.5
BUCKETS = 4
TIMER_AFTER_MS = 2000
TICK_MS = 500
KEYED_COLUMNS = (
    "get_json_object(cast(value as string), '$.id') key",
    "cast(get_json_object(cast(value as string), '$.copy') as bigint) amount",
)
WORKER_DIED = ("Python worker exited unexpectedly", "Python worker failed to connect back")
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss2m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a driver program is to run; it travels as JSON."""

    control: str
    """A folder of this driver alone: ready, go-1, rest-1, go-2, ..., result."""
    store: str
    topic: str
    lake: str
    checkpoint: str
    mode: str = "dedup"
    """dedup, plain (rows as they come), aggregate, timers, chain, or topic (into another)."""
    sink_id: str = "orders"
    variant: str = ""
    rows: str = "records"
    starting: str = "earliest"
    bootstrap: str = ""
    output: str = ""
    """Where a topic is written to."""
    offsets_max: int = 5000
    master: str = "local[2,8]"
    memory: str = "768m"
    java_options: str = ""
    warms_workers: bool = True
    ends_when_warm: bool = False
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return Path(self.control) / "plan.json"

    def save(self) -> Path:
        self.path.parent.mkdir(parents=True)
        self.path.write_text(json.dumps(asdict(self)))
        return self.path


def tell(plan: Plan, name: str, **facts: object) -> None:
    """A file that is there whole or not at all."""
    target = Path(plan.control) / name
    unfinished = target.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(facts))
    unfinished.rename(target)


def start_spark(plan: Plan) -> Any:
    import holdfast.spark

    return holdfast.spark.session(
        plan.master,
        app_name="chaos",
        config={
            "spark.driver.memory": plan.memory,
            "spark.driver.extraJavaOptions": f"{QUICK_JAVA} {plan.java_options}".strip(),
            "spark.sql.shuffle.partitions": "2",
            "spark.local.dir": f"{plan.control}/scratch",
            "spark.sql.warehouse.dir": f"{plan.control}/warehouse",
            **plan.settings,
        },
    )


def stream_of(spark: Any, plan: Plan) -> Any:
    reader = spark.readStream.format("holdfast").option("store", plan.store)
    reader = reader.option("subscribe", plan.topic).option("startingOffsets", plan.starting)
    rows = "ranges" if plan.mode == "chain" else plan.rows
    if plan.mode == "timers":
        reader = reader.option("tickInterval", f"{TICK_MS}ms")
    return reader.option("rows", rows).option("maxOffsetsPerTrigger", plan.offsets_max).load()


def built_of(stream: Any, mode: str) -> Any:
    """The pipeline of a mode, as far as its output."""
    from holdfast.spark import pipeline

    match mode:
        case "dedup":
            return pipeline(stream).dedup(by="value.$.id", buckets=BUCKETS)
        case "aggregate":
            wanted = {"records": ("count", None), "total": ("sum", "amount")}
            keyed = pipeline(stream.selectExpr(*KEYED_COLUMNS))
            return keyed.aggregate("key", wanted, buckets=BUCKETS)
        case "timers":
            after = f"{TIMER_AFTER_MS}ms"
            keyed = pipeline(stream.selectExpr(*KEYED_COLUMNS))
            return keyed.timers("key", after=after, buckets=BUCKETS)
        case _:
            return pipeline(stream)


def start_query(spark: Any, plan: Plan) -> Any:
    """The pipeline as a user writes it; or one of its planted variants."""
    if plan.mode == "topic":
        from tests.chaos.spark_topic_source import start_topic_query

        return start_topic_query(spark, plan)
    stream = stream_of(spark, plan)
    trigger = {"processingTime": "100 milliseconds"}
    if plan.mode == "chain":
        from holdfast.spark.ledger.chain_sink import ChainLanding, ChainSink

        writer = stream.writeStream.foreachBatch(ChainSink(ChainLanding(store=plan.lake)))
        writer = writer.option("checkpointLocation", plan.checkpoint)
        return writer.trigger(**trigger).start()
    built = built_of(stream, plan.mode).to(plan.lake, sink_id=plan.sink_id)
    if plan.variant:
        from tests.chaos.spark_variants import start_variant

        return start_variant(built, plan.variant, plan.checkpoint, trigger)
    return built.start(plan.checkpoint, trigger=trigger).query


def warm_workers(spark: Any) -> None:
    """Have Python workers up that have imported what tasks need, as in a query that runs."""
    spark.range(0, 2, 1, 2).mapInArrow(_imported, "id long").count()


def _imported(batches: Iterable[Any]) -> Iterator[Any]:
    import holdfast.columnar.json_field
    import holdfast.spark.ledger.chain_sink
    import holdfast.spark.ledger.tasks
    import holdfast.spark.topic.sink  # noqa: F401

    yield from batches


def is_at_rest_again(spark: Any, plan: Plan, number: int) -> bool:
    """Run the query of a number; False where it ended without having been told to."""
    go, rest = (Path(plan.control) / f"{word}-{number}" for word in ("go", "rest"))
    deadline = time.monotonic() + GO_SECONDS_MAX
    while not go.exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    wanted = replace(plan, **json.loads(go.read_text()))
    query = start_query(spark, wanted)
    while not has_ended(query, wanted):
        if not query.isActive:
            query = start_query(spark, wanted)
        if rest.exists():
            query.stop()
            tell(plan, f"rested-{number}")
            return True
    return False


def has_ended(query: Any, plan: Plan) -> bool:
    """Whether the query is over; a process of its sink that was killed is no reason to end it.

    A supervisor would start the query again, and not all of Spark.
    """
    try:
        return bool(query.awaitTermination(REST_LOOK_S))
    except Exception as error:
        if plan.mode != "topic" or not any(words in str(error) for words in WORKER_DIED):
            raise
        return False


def main() -> None:
    plan = Plan(**json.loads(Path(sys.argv[1]).read_text()))
    spark = start_spark(plan)
    if plan.warms_workers:
        warm_workers(spark)
    tell(plan, "ready", python=os.getpid(), jvm=spark.sparkContext._gateway.proc.pid)
    if plan.ends_when_warm:
        spark.stop()
        spark.sparkContext._gateway.shutdown()
        spark.sparkContext._gateway.proc.stdin.close()
        spark.sparkContext._gateway.proc.wait(60)
        return
    try:
        for number in itertools.count(1):
            if not is_at_rest_again(spark, plan, number):
                break
        tell(plan, "result", error=None)
    except BaseException as error:
        tell(plan, "result", error=f"{type(error).__name__}: {error}")
    # The JVM may be gone: nothing that would ask it to close.
    os._exit(EXIT_REFUSED)


if __name__ == "__main__":
    main()
