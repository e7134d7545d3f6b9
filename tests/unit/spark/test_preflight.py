"""The probes before a Spark starts: who does not answer, what is not there, where a run goes on."""

import asyncio
import json
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from tests.peers.process import free_port
from tests.unit.spark.stores import TOPIC, change, made

from holdfast.columnar.schema import SCHEMA_WITH_HEADERS
from holdfast.environment import SystemEnvironment
from holdfast.errors import ConfigurationError, RetryError
from holdfast.keyed_state.pinned import encode_pinned, nothing_pinned
from holdfast.landing.ledger import Committed, Ledger
from holdfast.landing.ledger_entry import Effects, MicroBatch, SourceRange
from holdfast.spark.ledger.checkpoint_folder import local_folder
from holdfast.spark.ledger.job import Job
from holdfast.spark.pipelines.file import PipelineFile, read_pipeline
from holdfast.spark.pipelines.preflight import PipelineReady, check_pipeline, resume
from holdfast.spark.source import offsets
from holdfast.spark.source.offsets import SourceOffset
from holdfast.store.directory import DirectoryStore


def pipeline(
    folder: Path, *overrides: str, store: str = "log", sink_id: str = "s", more: str = ""
) -> PipelineFile:
    file = folder / "p.toml"
    sink = f'sink_id = "{sink_id}"\n' if sink_id else ""
    file.write_text(
        f'[source]\nstore = "{store}"\nsubscribe = "{TOPIC}"\n[output]\nto = "lake"\n{sink}{more}'
    )
    return read_pipeline(file, overrides)


def commit(folder: Path, ready: PipelineReady, position: int, *, state: bytes = b"") -> None:
    """An entry that ends at a position of the first partition alone."""

    async def run() -> None:
        store = DirectoryStore(str(folder / "lake"), sync=False)
        ledger = await Ledger.open(store, "s", environment=SystemEnvironment())
        end = offsets.to_text(SourceOffset({ready.partitions[0]: position}))
        batch = MicroBatch(query_id="q", batch_id=0, sources=(SourceRange(start=None, end=end),))
        outcome = await ledger.commit(batch, Effects(state=state), n=0)
        assert isinstance(outcome, Committed)
        await store.close()

    asyncio.run(run())


def test_a_store_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(ConfigurationError, match=r"the source: there is no directory .*nowhere"):
        check_pipeline(pipeline(tmp_path, store="nowhere"))


def test_a_broker_that_does_not_answer_is_named_within_seconds(tmp_path: Path):
    port = free_port()
    file = tmp_path / "p.toml"
    file.write_text(
        f'[source]\nkafka.bootstrap.servers = "127.0.0.1:{port}"\nsubscribe = "t"\n'
        '[output]\nto = "lake"\n'
    )
    with pytest.raises(RetryError, match=f"no broker can be reached at 127.0.0.1:{port}"):
        check_pipeline(read_pipeline(file))


def test_a_topic_that_is_not_there_is_told_with_the_nearest_one(tmp_path: Path):
    made(tmp_path / "log")
    with pytest.raises(ConfigurationError, match=r"no topic 'tt': did you mean 't'\?"):
        check_pipeline(pipeline(tmp_path, "source.subscribe=tt"))


def test_an_output_that_cannot_be_is_refused_and_nothing_is_created(tmp_path: Path):
    made(tmp_path / "log")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="is not a directory"):
        check_pipeline(pipeline(tmp_path, f"output.to={tmp_path}/file/lake"))
    check_pipeline(pipeline(tmp_path))
    assert not (tmp_path / "lake").exists()


def test_a_first_run_has_nothing_to_go_on_from(tmp_path: Path):
    made(tmp_path / "log")
    wanted = pipeline(tmp_path)
    assert resume(wanted, check_pipeline(wanted)) is None


def test_without_a_checkpoint_a_run_goes_on_at_the_ledgers_position(tmp_path: Path):
    made(tmp_path / "log", lambda b: b.fill(2), partitions=2)
    wanted = pipeline(tmp_path)
    commit(tmp_path, check_pipeline(wanted), 20)
    found = resume(wanted, check_pipeline(wanted))
    assert found is not None
    # What the ledger does not know begins at its earliest offset.
    assert json.loads(found.starting_offsets()) == {TOPIC: {"0": 20, "1": -2}}
    assert "entry 0" in found.by


DEDUP = '[dedup]\nby = "key"\n'
AGGREGATE = '[aggregate]\nby = "key"\ncolumns = { orders = "count" }\n'


def state_of(wanted: PipelineFile) -> bytes:
    """What the first micro-batch of a pipeline pins."""
    assert isinstance(wanted.sink, Job)
    assert wanted.sink.operation is not None
    operator = wanted.sink.operation.operator(SCHEMA_WITH_HEADERS)
    return encode_pinned(nothing_pinned(operator, buckets=2, hash_seed=1))


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        (DEDUP, AGGREGATE, r"was made by 'dedup', but the pipeline now has 'aggregate'"),
        (
            AGGREGATE,
            AGGREGATE.replace("count", "max(offset)"),
            "made by 'aggregate' with other settings",
        ),
        (DEDUP, "", "earlier runs had a stateful step, and this pipeline has none"),
        ("", DEDUP, "1 micro-batches were committed without a stateful step"),
    ],
)
def test_a_step_that_is_not_the_one_that_made_the_state_is_refused_before_a_spark_starts(
    tmp_path: Path, before: str, now: str, words: str
):
    made(tmp_path / "log", lambda b: b.fill(2))
    first = pipeline(tmp_path, more=before)
    state = state_of(first) if before else b""
    commit(tmp_path, check_pipeline(first), 20, state=state)
    assert check_pipeline(first).head is not None
    with pytest.raises(ConfigurationError, match=words):
        check_pipeline(pipeline(tmp_path, more=now))


def test_a_catalog_that_nobody_described_is_told_before_a_spark_starts(tmp_path: Path):
    made(tmp_path / "log")
    wanted = pipeline(tmp_path, more='[iceberg]\ntable = "a.b"\ncatalog = "nowhere"\n')
    with pytest.raises(ConfigurationError, match="the catalog 'nowhere' cannot be loaded"):
        check_pipeline(wanted)


def test_a_table_with_other_partition_columns_is_told_before_a_spark_starts(tmp_path: Path):
    made(tmp_path / "log")
    table = str(tmp_path / "lake" / "data" / "s")
    columns = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("value", pa.binary())])
    deltalake.DeltaTable.create(table, columns, partition_by=["topic", "partition"])
    check_pipeline(pipeline(tmp_path, more='partition_by = ["partition", "topic"]\n[delta]\n'))
    with pytest.raises(ConfigurationError, match=r"data/s is partitioned by topic, partition, and"):
        check_pipeline(pipeline(tmp_path, more='partition_by = "topic"\n[delta]\n'))


def test_a_topic_that_was_created_again_is_no_continuation(tmp_path: Path):
    made(tmp_path / "log", lambda b: b.fill(2))
    wanted = pipeline(tmp_path)
    commit(tmp_path, check_pipeline(wanted), 20)
    change(tmp_path / "log", lambda b: b.remove_topic(), lambda b: b.topic(TOPIC, 1))
    with pytest.raises(ConfigurationError, match=r"created again.*new sink_id"):
        resume(wanted, check_pipeline(wanted))


def test_chains_that_have_not_begun_are_nothing_to_go_on_from(tmp_path: Path):
    made(tmp_path / "log", lambda b: b.fill(2))
    wanted = pipeline(tmp_path, sink_id="")
    assert resume(wanted, check_pipeline(wanted)) is None


def test_a_checkpoint_has_begun_once_it_has_offsets(tmp_path: Path):
    folder = local_folder(str(tmp_path / "checkpoint"))
    assert folder is not None
    assert not folder.has_begun()
    assert folder.set_aside("old") is None
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "metadata").write_text("{}")
    assert not folder.has_begun(), "a run that was killed before its first micro-batch"
    (tmp_path / "checkpoint" / "offsets").mkdir()
    (tmp_path / "checkpoint" / "offsets" / "117").write_text("v1")
    assert folder.has_begun()
    assert folder.set_aside("old") == str(tmp_path / "checkpoint.old")
    assert not folder.has_begun()
    assert (tmp_path / "checkpoint.old" / "metadata").exists()
    assert local_folder("s3a://bucket/checkpoint") is None
