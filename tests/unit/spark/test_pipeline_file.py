"""Pipeline files: what they mean, and what is said of one that is wrong, with no Spark at all."""

import json
from pathlib import Path

import pytest

from holdfast.errors import ConfigurationError
from holdfast.keyed_state.aggregates import Aggregate, Function
from holdfast.keyed_state.dedup import LatePolicy
from holdfast.spark.ledger.chain_sink import ChainLanding
from holdfast.spark.ledger.job import Aggregation, Dedup, Job, Timers
from holdfast.spark.pipelines.file import RECORDS_PER_TRIGGER, PipelineFile, read_pipeline
from holdfast.spark.source.options import AtTimestamp, End, Rows, Subscribe

SOURCE = """
[source]
store = "/data/log"
subscribe = "orders"
"""
DEDUP = """
[dedup]
by = "value.$.id"
"""
AGGREGATE = """
[aggregate]
by = "key"
columns = { orders = "count", newest = "max(offset)" }
"""
TIMERS = """
[timers]
by = "key"
after = "1 minute"
"""
OUTPUT = """
[output]
to = "/data/lake"
sink_id = "orders"
"""


class Folder:
    """A folder that pipelines are written into."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, text: str, *overrides: str, name: str = "orders.toml") -> PipelineFile:
        file = self.path / name
        file.write_text(text)
        return read_pipeline(file, overrides)

    def refusal(self, text: str, *overrides: str, name: str = "orders.toml") -> str:
        with pytest.raises(ConfigurationError) as refused:
            self.read(text, *overrides, name=name)
        return str(refused.value)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def job_of(pipeline: PipelineFile) -> Job:
    assert isinstance(pipeline.sink, Job)
    return pipeline.sink


def dedup_of(pipeline: PipelineFile) -> Dedup:
    operation = job_of(pipeline).operation
    assert isinstance(operation, Dedup)
    return operation


def landing_of(pipeline: PipelineFile) -> ChainLanding:
    assert isinstance(pipeline.sink, ChainLanding)
    return pipeline.sink


def test_a_short_file_gives_a_whole_pipeline(folder: Folder):
    pipeline = folder.read(
        SOURCE
        + """
[dedup]
by = ["value.$.id", "topic"]
within = "24 hours"
event_time = "timestamp"
lateness = "1 hour"
late = "divert"
buckets = 4
"""
        + OUTPUT
        + 'format = "jsonl.zst"\npartition_by = "topic"\ntrigger = "1 minute"\n'
        + '[spark]\nmaster = "local[2]"\n[spark.conf]\nspark.driver.memory = "2g"\n'
    )
    dedup = dedup_of(pipeline)
    assert dedup.by == ("value.$.id", "topic")
    assert dedup.settings.within_ms == 86_400_000
    assert dedup.settings.lateness_ms == 3_600_000
    assert dedup.settings.late is LatePolicy.DIVERT
    assert (dedup.event_time, dedup.buckets) == ("timestamp", 4)
    output = job_of(pipeline).output
    assert (output.store, output.sink_id) == ("/data/lake", "orders")
    assert (output.format, output.partition_by) == ("jsonl.zst", ("topic",))
    assert pipeline.trigger.interval_ms == 60_000
    assert pipeline.checkpoint == "/data/lake.checkpoints/orders"
    assert (pipeline.master, pipeline.conf) == ("local[2]", {"spark.driver.memory": "2g"})
    assert pipeline.options.selection == Subscribe(("orders",))


def test_aggregates_are_read_with_all_that_the_builder_has(folder: Folder):
    text = (
        SOURCE
        + """
[aggregate]
by = ["topic", "key"]
event_time = "timestamp"
forget_after = "7 days"
late = "divert"
buckets = 4
[aggregate.columns]
orders = "count"
named = "COUNT( key )"
last_value = "last(value)"
"""
        + OUTPUT
    )
    found = job_of(folder.read(text)).operation
    assert isinstance(found, Aggregation)
    assert found.by == ("topic", "key")
    assert found.settings.aggregates == (
        Aggregate(name="orders", function=Function.COUNT),
        Aggregate(name="named", function=Function.COUNT, column="key"),
        Aggregate(name="last_value", function=Function.LAST, column="value"),
    )
    assert (found.event_time, found.buckets) == ("timestamp", 4)
    assert found.settings.idle_ms == 7 * 86_400_000
    assert found.settings.late is LatePolicy.DIVERT
    changed = folder.read(text, "aggregate.columns.orders=count(value)")
    operation = job_of(changed).operation
    assert isinstance(operation, Aggregation)
    assert operation.settings.aggregates[0].column == "value"


def test_timers_are_looked_at_as_often_as_the_trigger_says_without_any_record(folder: Folder):
    pipeline = folder.read(SOURCE + TIMERS + OUTPUT + 'trigger = "5 seconds"\n')
    found = job_of(pipeline).operation
    assert isinstance(found, Timers)
    assert (found.by, found.settings.after_ms) == (("key",), 60_000)
    assert pipeline.options.tick_ms == 5_000
    own = folder.read(SOURCE + 'tickInterval = "300ms"\n' + TIMERS + OUTPUT)
    assert own.options.tick_ms == 300
    assert folder.read(SOURCE + TIMERS + OUTPUT + 'trigger = "once"\n').options.tick_ms == 1_000
    assert folder.read(SOURCE + DEDUP + OUTPUT).options.tick_ms is None


def test_tables_follow_the_ledger_of_the_output(folder: Folder):
    iceberg = '[iceberg]\ntable = "lake.orders"\nproperties.s3.endpoint = "http://h:1"\n'
    pipeline = folder.read(SOURCE + OUTPUT + "[delta]\n" + iceberg)
    assert [str(table) for table in pipeline.tables] == [
        "Delta, in the folder of the sink",
        "Iceberg lake.orders, in the catalog default",
    ]
    assert job_of(pipeline).operation is None
    assert folder.read(SOURCE + OUTPUT).tables == ()


def test_folders_are_of_columns_that_the_step_gives(folder: Folder):
    def by(step: str, column: str) -> str:
        return SOURCE + step + OUTPUT + f'partition_by = "{column}"\n'

    assert job_of(folder.read(by(AGGREGATE, "orders"))).output.partition_by == ("orders",)
    assert job_of(folder.read(by(TIMERS, "deadline"))).output.partition_by == ("deadline",)
    assert "there are key, orders, newest, _entry" in folder.refusal(by(AGGREGATE, "topic"))
    diverted = AGGREGATE + 'event_time = "timestamp"\nforget_after = "1 day"\nlate = "divert"\n'
    assert "there are key. " in folder.refusal(by(diverted, "orders"))


def test_defaults_are_safe_for_a_first_run_over_a_large_topic(folder: Folder):
    options = folder.read(SOURCE + DEDUP + OUTPUT).options
    assert options.offsets_per_trigger_max == RECORDS_PER_TRIGGER
    assert options.starting is End.EARLIEST
    assert options.fail_on_data_loss


def test_rows_pass_through_spark_only_where_there_is_a_transform(folder: Folder):
    assert folder.read(SOURCE + OUTPUT).options.rows is Rows.RANGES
    (folder.path / "orders.py").write_text("def pipeline(frame): return frame\n")
    with_transform = SOURCE + '[transform]\npython = "orders.py"\n' + OUTPUT
    pipeline = folder.read(with_transform)
    assert pipeline.options.rows is Rows.RECORDS
    assert str(pipeline.transform) == "orders.py:pipeline"
    assert "rows cannot be set" in folder.refusal(SOURCE + 'rows = "ranges"\n' + OUTPUT)


def test_records_as_they_are_go_onto_chains_and_all_else_into_a_ledger(folder: Folder):
    chain = landing_of(folder.read(SOURCE + '[output]\nto = "/data/lake"\n'))
    assert (chain.store, chain.format, chain.cover_hole) == ("/data/lake", "parquet", False)
    hive = 'key = "topic={topic}/partition={partition}/{offset}"\nformat = "jsonl.zst/envelope"\n'
    lenient = SOURCE + 'failOnDataLoss = false\n[output]\nto = "/data/lake"\n' + hive
    chain = landing_of(folder.read(lenient))
    assert chain.template.startswith("topic=")
    assert chain.cover_hole
    assert job_of(folder.read(SOURCE + OUTPUT)).operation is None
    plain = SOURCE + OUTPUT + 'mode = "chain"\n'
    assert 'needs mode = "ledger"' in folder.refusal(plain)
    assert 'key is for mode = "chain"' in folder.refusal(SOURCE + OUTPUT + 'key = "x"\n')
    assert "sink_id is missing" in folder.refusal(SOURCE + DEDUP + '[output]\nto = "/lake"\n')


def test_options_of_kafka_may_be_written_dotted_or_quoted(folder: Folder):
    dotted = "[source]\nkafka.bootstrap.servers = 'h:1'\nkafka.client.id = 'me'\nsubscribe = 't'\n"
    quoted = dotted.replace("kafka.bootstrap.servers", '"kafka.bootstrap.servers"')
    for text in (dotted, quoted.replace("kafka.client.id", '"kafka.client.id"')):
        options = folder.read(text + OUTPUT).options
        assert options.bootstrap_servers == "h:1"
        assert options.client == {"client.id": "me"}


def test_values_of_toml_become_the_texts_of_options(folder: Folder):
    text = """
[source]
store = "/data/log"
subscribe = ["a", "b"]
startingTimestamp = 2026-11-01T00:00:00Z
includeHeaders = true
maxOffsetsPerTrigger = 5000
"""
    options = folder.read(text + OUTPUT).options
    assert options.selection == Subscribe(("a", "b"))
    assert options.starting == AtTimestamp(1_793_491_200_000)
    assert options.include_headers
    assert options.offsets_per_trigger_max == 5000
    positions = SOURCE + "startingOffsets = { orders = { 0 = 5 } }\n" + OUTPUT
    assert json.loads(folder.read(positions).source["startingOffsets"]) == {"orders": {"0": 5}}
    assert "no time zone" in folder.refusal(text.replace("00Z", "00") + OUTPUT)


def test_a_header_as_key_brings_the_headers_along(folder: Folder):
    by_header = SOURCE + '[dedup]\nby = "headers.id"\n' + OUTPUT
    assert folder.read(by_header).options.include_headers
    without = by_header.replace("[dedup]", "includeHeaders = false\n[dedup]")
    assert "includeHeaders = true" in folder.refusal(without)


def test_a_backlog_does_not_wait_for_the_trigger(folder: Folder):
    pipeline = folder.read(SOURCE + "maxOffsetsPerTrigger = 500\n" + OUTPUT)
    assert pipeline.trigger.interval_ms == 10_000
    assert pipeline.options.offsets_per_trigger_min == 500
    assert pipeline.options.trigger_delay_ms_max == 10_000
    assert pipeline.trigger.for_spark() == {"processingTime": "1000 milliseconds"}
    own = folder.read(SOURCE + "minOffsetsPerTrigger = 7\n" + OUTPUT)
    assert own.options.offsets_per_trigger_min == 7


@pytest.mark.parametrize("text", ["once", "availableNow"])
def test_a_trigger_may_be_once(folder: Folder, text: str):
    pipeline = folder.read(SOURCE + OUTPUT + f'trigger = "{text}"\n')
    assert pipeline.trigger.for_spark() == {"availableNow": True}
    assert pipeline.options.offsets_per_trigger_min is None


def test_the_command_line_wins_over_the_file(folder: Folder):
    file = folder.path / "orders.toml"
    file.write_text(SOURCE + "kafka.isolation.level = 'read_committed'\n" + OUTPUT)
    pipeline = read_pipeline(
        file,
        [
            "source.startingoffsets=latest",
            "source.kafka.isolation.level=read_uncommitted",
            "spark.conf.spark.driver.memory=1g",
            "output.partition_by=['topic']",
        ],
        master="local[1]",
        once=True,
    )
    assert pipeline.options.starting is End.LATEST
    assert not pipeline.options.read_committed
    assert pipeline.conf == {"spark.driver.memory": "1g"}
    assert job_of(pipeline).output.partition_by == ("topic",)
    assert pipeline.master == "local[1]"
    assert pipeline.trigger.interval_ms is None


def test_paths_are_seen_from_the_folder_of_the_file(folder: Folder, tmp_path: Path):
    text = '[source]\nstore = "log"\nsubscribe = "t"\n[output]\nto = "lake"\n'
    pipeline = folder.read(text)
    assert pipeline.options.store == str(tmp_path / "log")
    assert pipeline.to == str(tmp_path / "lake")
    assert pipeline.checkpoint == str(tmp_path / "lake.checkpoints" / "chain-orders")


def test_a_python_file_has_its_tables_in_OPTIONS(folder: Folder):
    text = """
OPTIONS = {
    "source": {"store": "/data/log", "subscribe": "orders"},
    "output": {"to": "/data/lake", "sink_id": "orders"},
}

def pipeline(frame):
    return frame.where("value is not null")
"""
    pipeline = folder.read(text, "output.sink_id=other", name="orders.py")
    assert pipeline.transform is not None
    assert job_of(pipeline).output.sink_id == "other"
    missing = text.replace("def pipeline", "def pipelin")
    assert "did you mean 'pipelin'?" in folder.refusal(missing, name="near.py")
    assert "one argument" in folder.refusal(text.replace("(frame)", "()"), name="none.py")
    assert "line 2: NameError" in folder.refusal("x = 1\ny = z\n", name="broken.py")
    assert "line 1" in folder.refusal("def :\n", name="syntax.py")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[source\n", ["orders.toml is not TOML", "line 1"]),
        (OUTPUT, ["the table [source] is missing"]),
        (SOURCE, ["the table [output] is missing"]),
        (SOURCE + OUTPUT + "[sources]\n", ["unknown table 'sources'", "did you mean [source]?"]),
        ('trigger = "once"\n' + SOURCE + OUTPUT, ["'trigger'", "put it below [output]"]),
        (SOURCE + "startingOffset = 'latest'\n" + OUTPUT, ["line 5", "'startingOffsets'?"]),
        (SOURCE + "kafka.group.id = 'x'\n" + OUTPUT, ["line 5", "no consumer group"]),
        (SOURCE.replace("subscribe", "topic") + OUTPUT, ["line 4", "subscribe"]),
        (SOURCE.replace("store", "kafka.x") + OUTPUT, ["neither is set", "store"]),
        (SOURCE + "kafka.bootstrap.servers = 'h:1'\n" + OUTPUT, ["both are set"]),
        (SOURCE + "maxOffsetsPerTrigger = 0\n" + OUTPUT, ["line 5", "maxOffsetsPerTrigger"]),
        (SOURCE + "[dedup]\nby = 'id'\n" + OUTPUT, ["line 6", "[dedup] by", "value.$.id"]),
        (SOURCE + "[dedup]\nby = 'valu'\n" + OUTPUT, ["did you mean 'value'?"]),
        (SOURCE + "[dedup]\nby = 5\n" + OUTPUT, ["line 6", "[dedup] by", "must be"]),
        (SOURCE + "[dedup]\nwithin = '1 day'\n" + OUTPUT, ["line 5", "the key 'by' is missing"]),
        (SOURCE + DEDUP + "within = '1 fortnight'\n" + OUTPUT, ["line 8", "within", "duration"]),
        (SOURCE + DEDUP + "within = '1 day'\n" + OUTPUT, ["[dedup]", "event_time"]),
        (
            SOURCE + DEDUP + "within = '1 day'\nevent_time = 'value.$.at'\n" + OUTPUT,
            ["line 9", "event_time", "timestamp"],
        ),
        (SOURCE + DEDUP + "late = 'drop'\n" + OUTPUT, ["line 8", "late", "drop"]),
        (SOURCE + DEDUP + "window = '1 day'\n" + OUTPUT, ["line 8", "'window'", "within"]),
        (SOURCE + DEDUP + "buckets = 0\n" + OUTPUT, ["[dedup]", "buckets"]),
        (SOURCE + DEDUP + "trigger = 'once'\n" + OUTPUT, ["line 8", "belongs below [output]"]),
        (SOURCE + DEDUP + AGGREGATE + OUTPUT, ["line 9: [aggregate]", "[dedup]", "one stateful"]),
        (SOURCE + TIMERS + "[aggregate]\n" + OUTPUT, ["[timers]", "[aggregate]", "one stateful"]),
        (SOURCE + "[aggregates]\n" + OUTPUT, ["did you mean [aggregate]?"]),
        (SOURCE + "[timer]\nby = 'key'\n" + OUTPUT, ["did you mean [timers]?"]),
        (SOURCE + AGGREGATE + "forget = '1 day'\n" + OUTPUT, ["line 9", "'forget'"]),
        (SOURCE + AGGREGATE.replace("by", "key") + OUTPUT, ["line 7", "'key'"]),
        (SOURCE + AGGREGATE.replace('"key"', '"kye"') + OUTPUT, ["line 7", "did you mean 'key'?"]),
        (
            SOURCE + AGGREGATE.replace('"key"', '"value.$.id"') + OUTPUT,
            ["line 7", "[aggregate] by", "JSON", "[transform]"],
        ),
        (
            SOURCE + AGGREGATE.replace("max(offset)", "summ(offset)") + OUTPUT,
            ["[aggregate]", "no 'summ'", "did you mean 'sum'?"],
        ),
        (
            SOURCE + AGGREGATE.replace("max(offset)", "max offset") + OUTPUT,
            ["line 8", "columns.newest", '"sum(amount)"'],
        ),
        (SOURCE + AGGREGATE.replace("(offset)", "") + OUTPUT, ["'newest'", "max needs a column"]),
        (
            SOURCE + AGGREGATE.replace("max(offset)", "max(ofset)") + OUTPUT,
            ["line 8", "columns.newest", "did you mean 'offset'?"],
        ),
        (
            SOURCE + AGGREGATE.replace("max(offset)", "sum(value)") + OUTPUT,
            ["line 8", "columns.newest", "binary", "sum is of numbers"],
        ),
        (SOURCE + AGGREGATE.replace("newest", "key") + OUTPUT, ["[aggregate]", "must differ"]),
        (SOURCE + AGGREGATE.replace("newest", "_entry") + OUTPUT, ["'_entry'", "rename yours"]),
        (SOURCE + AGGREGATE + "forget_after = '1 day'\n" + OUTPUT, ["[aggregate]", "event_time"]),
        (
            SOURCE + AGGREGATE + "forget_after = 'soon'\n" + OUTPUT,
            ["line 9", "forget_after", "duration"],
        ),
        (
            SOURCE + "includeHeaders = true\n" + TIMERS.replace('"key"', '"headers"') + OUTPUT,
            ["[timers] by", "plain column"],
        ),
        (SOURCE + TIMERS.replace("1 minute", "0s") + OUTPUT, ["[timers]", "after_ms is 0"]),
        (SOURCE + TIMERS.replace("1 minute", "1") + OUTPUT, ["line 8", "[timers] after"]),
        (SOURCE + "[timers]\nby = 'key'\n" + OUTPUT, ["line 5", "the key 'after' is missing"]),
        (SOURCE + AGGREGATE + OUTPUT + "mode = 'chain'\n", ["[aggregate] needs", '"ledger"']),
        (SOURCE + OUTPUT + "mode = 'chain'\n[delta]\n", ["needs mode"]),
        (SOURCE + OUTPUT + "format = 'jsonl.zst'\n[delta]\n", ["line 9", "Parquet"]),
        (SOURCE + OUTPUT + "[iceberg]\n", ["line 9", "the key 'table' is missing"]),
        (SOURCE + OUTPUT + "[iceberg]\ntable = 'orders'\n", ["line 10", "namespace.table"]),
        (SOURCE + OUTPUT + "[iceberg]\ntabel = 'a.b'\n", ["line 10", "did you mean 'table'?"]),
        (SOURCE + OUTPUT + "partition_by = ['day']\n", ["line 9", "'day'", "transform"]),
        (SOURCE + OUTPUT + "trigger = 'often'\n", ["line 9", "trigger", "once"]),
        (SOURCE + OUTPUT + "format = 'csv'\n", ["line 9", "format", "parquet"]),
        (SOURCE + OUTPUT + "[transform]\npython = 'no.py'\n", ["line 10", "no file"]),
        (SOURCE + OUTPUT + "[spark.conf]\ndriver.memory = '1g'\n", ["spark.driver.memory"]),
        (SOURCE + OUTPUT.replace("/data/lake", "s3://b/lake"), ["[output]", "checkpoint"]),
        (SOURCE + OUTPUT.replace("/data/lake", "memory://x"), ["line 7", "memory"]),
        (SOURCE + OUTPUT + "checkpoint = '/data/lake/c'\n", ["line 9", "inside the output"]),
        (SOURCE + OUTPUT.replace('"orders"', '"a/b"'), ["line 8", "sink id"]),
        (SOURCE + "[output]\nto = '/lake'\nkey = '{topic}/{offset}'\n", ["line 7", "{partition}"]),
    ],
)
def test_what_is_wrong_is_said_with_its_place_and_a_remedy(
    folder: Folder, text: str, parts: list[str]
):
    message = folder.refusal(text)
    for part in parts:
        assert part in message, message


def test_what_is_wrong_on_the_command_line_is_said_of_it(folder: Folder):
    text = SOURCE + DEDUP + OUTPUT
    assert "--option dedup.within: " in folder.refusal(text, "dedup.within=soon")
    assert "TABLE.KEY=VALUE" in folder.refusal(text, "within=1 day")
    assert "did you mean [dedup]?" in folder.refusal(text, "dedupe.within=1 day")
    assert "--option output.sinkid: " in folder.refusal(text, "output.sinkid=x")


def test_a_file_that_is_not_there_is_told_with_the_nearest_one(folder: Folder):
    (folder.path / "orders.toml").write_text(SOURCE)
    with pytest.raises(ConfigurationError, match=r"did you mean orders.toml\?"):
        read_pipeline(folder.path / "order.toml")
    (folder.path / "orders.yaml").write_text("")
    with pytest.raises(ConfigurationError, match=r"a .toml file, or a .py file"):
        read_pipeline(folder.path / "orders.yaml")
