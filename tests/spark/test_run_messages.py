"""What `holdfast run` says to a person: mistakes by file and line, and a terminal without noise."""

from pathlib import Path

import pytest
from tests.peers.holdfast import HoldfastBroker
from tests.peers.process import free_port
from tests.spark.commands import SPARK_SMALL, holdfast, rows
from tests.support.topics import Topics

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

NOISE = ("Traceback", "WARN", "BrokenPipe", "incubator", "log4j", "NativeCodeLoader", "py4j")


def written(folder: Path, broker: HoldfastBroker, topic: str, code: str) -> Path:
    """A pipeline with a transform of a file of its own."""
    (folder / "steps.py").write_text(code)
    file = folder / "p.toml"
    file.write_text(
        f'[source]\nstore = "{broker.store}"\nsubscribe = "{topic}"\n'
        '[transform]\npython = "steps.py"\n[output]\nto = "lake"\nsink_id = "s"\n' + SPARK_SMALL
    )
    return file


@pytest.fixture(autouse=True)
def filled(topics: Topics, topic: str) -> None:
    topics.create(topic, 2)
    topics.produce(topic, ["1", "2", "0"], partition=0)


def test_an_error_in_a_udf_of_the_module_names_file_and_line_and_the_terminal_stays_clean(
    holdfast_broker: HoldfastBroker, topic: str, tmp_path: Path
):
    """The first micro-batch lands; the second one has the record that the udf cannot take."""
    code = (
        "from pyspark.sql.functions import udf\n\n"
        '@udf("int")\ndef inverse(value):\n    return 2 // int(value)\n\n'
        'def pipeline(frame):\n    return frame.select(inverse("value").alias("n"))\n'
    )
    file = written(tmp_path, holdfast_broker, topic, code)
    batches = ("--option", "source.maxOffsetsPerTrigger=2")
    said = holdfast("run", str(file), "--once", *batches, expected=1)
    assert "in steps.py, line 5, in inverse: ZeroDivisionError" in said
    assert sorted(row["n"] for row in rows(tmp_path / "lake")) == [1, 2]
    lines = said.splitlines()
    named = [line for line in lines if line.startswith("Spark's log: ")]
    assert len(named) == 1, said
    log = Path(named[0].removeprefix("Spark's log: "))
    assert "WARN" in log.read_text()
    log.unlink()
    for noise in NOISE:
        assert noise not in said, said


def test_a_dry_run_finds_a_wrong_column_with_file_and_line(
    holdfast_broker: HoldfastBroker, topic: str, tmp_path: Path
):
    code = (
        'def pipeline(frame):\n    frame = frame.where("offset >= 0")\n'
        '    return frame.select("valeu")\n'
    )
    file = written(tmp_path, holdfast_broker, topic, code)
    said = holdfast("run", str(file), "--dry-run", expected=1)
    assert "steps.py, line 3, in pipeline: AnalysisException" in said
    assert "valeu" in said
    assert not (tmp_path / "lake.checkpoints").exists()


def test_a_master_that_does_not_answer_is_one_line_before_spark_starts(
    holdfast_broker: HoldfastBroker, topic: str, tmp_path: Path
):
    file = written(tmp_path, holdfast_broker, topic, "def pipeline(frame):\n    return frame\n")
    master = f"spark://127.0.0.1:{free_port()}"
    said = holdfast("run", str(file), "--master", master, expected=4)
    assert said.startswith(f"holdfast: no Spark master answers at {master} (")
    assert len(said.splitlines()) == 1
