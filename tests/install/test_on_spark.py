"""The wheel on real Sparks, from an environment that nobody activated.

A standalone cluster has a Master and a Worker as processes that know nothing of Holdfast: neither
their Python nor their path has it. The `python3` of the path fails, for driver and executors, so
whatever starts it is found. One program is the driver of all sessions, one after the other: a JVM
is what costs most.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.chaos.spark_cluster import StandaloneCluster
from tests.install.conftest import Served
from tests.support.bare_environments import BareEnvironment

from holdfast.spark.runtime.java import find_java

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

COUNT = 1_000
DRIVER_SECONDS_MAX = 1_000
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
PIPELINE = """
[source]
store = "{store}"
subscribe = "orders"
[output]
to = "{lake}"
sink_id = "orders"
checkpoint = "{checkpoint}"
[spark]
master = "{master}"
[spark.conf]
spark.driver.memory = "700m"
spark.executor.memory = "600m"
spark.driver.host = "127.0.0.1"
spark.driver.extraJavaOptions = "{jvm}"
spark.executor.extraJavaOptions = "{jvm}"
spark.python.authenticate.socketTimeout = "150s"
"""
DRIVER = """
import os
import runpy
import sys

cluster, store, folder, jvm, libraries_alone = sys.argv[1:]

# `holdfast run`, as its script in bin does it. It starts the JVM that the others go on with.
assert "PYSPARK_PYTHON" not in os.environ
sys.argv = ["holdfast", "run", f"{folder}/pipeline.toml", "--once"]
try:
    runpy.run_path(os.path.join(os.path.dirname(sys.executable), "holdfast"), run_name="__main__")
except SystemExit as end:
    print("the run ended with", end.code, flush=True)

from pyspark.sql import SparkSession


def session(master, python):
    os.environ["PYSPARK_PYTHON"] = python
    builder = SparkSession.builder.master(master).config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.executor.memory", "600m")
    builder = builder.config("spark.executor.extraJavaOptions", jvm)
    # A busy machine takes longer than Spark's 15 s to start a Python.
    return builder.config("spark.python.authenticate.socketTimeout", "150s").getOrCreate()


options = {"store": store, "subscribe": "orders", "startingOffsets": "earliest"}

# A session of one's own that registers nothing.
spark = session("local[1]", sys.executable)
batch = spark.read.format("holdfast").options(**options).load()
print("rows of a batch query:", batch.count(), flush=True)
stream = spark.readStream.format("holdfast").options(**options).load()
print("columns of a stream:", *stream.columns[:2], flush=True)
landed = spark.read.format("holdfast-landed").option("store", f"{folder}/lake")
print("columns of what landed:", *landed.option("sinkId", "orders").load().columns[:2], flush=True)
import holdfast.spark
holdfast.spark.register(spark)
print("and may be registered all the same", flush=True)
spark.stop()

# Executors whose Python has the libraries and no Holdfast.
spark = session(cluster, libraries_alone)
holdfast.spark.register(spark)
batch = spark.read.format("holdfast").options(**options).load()
print("rows on executors without the package:", batch.count(), flush=True)
spark.stop()
"""


@pytest.fixture(scope="module")
def store(base: BareEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    served = Served(base, tmp_path_factory.mktemp("served"))
    try:
        producer = Producer({"bootstrap.servers": served.bootstrap})
        for i in range(COUNT):
            producer.produce("orders", key=str(i), value=f'{{"id": {i}}}')
        assert producer.flush(60) == 0
        yield served.store
    finally:
        served.process.stop()


@pytest.fixture(scope="module")
def path_without_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH whose python3 fails, whatever environment the tests run in."""
    folder = tmp_path_factory.mktemp("bin")
    for name in ("python3", "python"):
        program = folder / name
        program.write_text("#!/bin/sh\necho 'the python of the PATH was started' >&2\nexit 9\n")
        program.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, path_without_python: str
) -> Iterator[StandaloneCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    variables = {"PYTHONPATH": "", "PYSPARK_PYTHON": "python3", "PATH": path_without_python}
    started = StandaloneCluster(folder, workers=1, environment=variables).start()
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="module")
def libraries_alone(
    tmp_path_factory: pytest.TempPathFactory, with_spark: BareEnvironment
) -> BareEnvironment:
    """What a cluster's own Python may have: Spark and the libraries, and no Holdfast."""
    return BareEnvironment(tmp_path_factory.mktemp("libraries"), None, onto=[with_spark])


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("driver") / "lake"


@pytest.fixture(scope="module")
def driver(
    with_spark: BareEnvironment,
    libraries_alone: BareEnvironment,
    cluster: StandaloneCluster,
    store: str,
    path_without_python: str,
    lake: Path,
) -> subprocess.CompletedProcess[str]:
    """The driver program, after its end."""
    folder = lake.parent
    where = {"store": store, "lake": lake, "checkpoint": folder / "checkpoint"}
    text = PIPELINE.format(master=cluster.url, jvm=JVM, **where)
    (folder / "pipeline.toml").write_text(text)
    arguments = [cluster.url, store, str(folder), JVM, str(libraries_alone.python)]
    return with_spark.run(
        *("python", "-c", DRIVER, *arguments),
        seconds_max=DRIVER_SECONDS_MAX,
        PATH=path_without_python,
        JAVA_HOME=str(find_java({}).home),
    )


def assert_said(driver: subprocess.CompletedProcess[str], *lines: str) -> None:
    for line in lines:
        assert line in driver.stdout.splitlines(), driver.stdout + driver.stderr[-3000:]


def test_a_pipeline_on_a_cluster_runs_with_the_python_of_its_driver(
    driver: subprocess.CompletedProcess[str], with_spark: BareEnvironment, lake: Path
):
    assert_said(driver, "the run ended with 0")
    landed = with_spark.run("holdfast", "landed", str(lake), "--verify", "--json")
    assert landed.returncode == 0, landed.stdout
    assert f'"rows": {COUNT}' in landed.stdout


def test_spark_finds_both_sources_by_itself(driver: subprocess.CompletedProcess[str]):
    assert_said(
        driver,
        f"rows of a batch query: {COUNT}",
        "columns of a stream: key value",
        "columns of what landed: key value",
        "and may be registered all the same",
    )


def test_executors_without_the_package_are_given_it_by_register(
    driver: subprocess.CompletedProcess[str],
):
    assert_said(driver, f"rows on executors without the package: {COUNT}")
    assert driver.returncode == 0, driver.stderr[-3000:]
