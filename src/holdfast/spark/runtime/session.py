"""Creates a SparkSession for Holdfast: finds a Java, applies settings, registers the formats.

Owns the settings of sessions that Holdfast starts. Imports pyspark only inside functions, so that
the pure modules of this package stay light to import. Must never override a setting of the caller.
"""

import contextlib
import logging
import os
import tempfile
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from holdfast.environment import process_variables
from holdfast.extras import require
from holdfast.spark.runtime.executors import check_python, choose_python, ship_package
from holdfast.spark.runtime.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

LOGGER = logging.getLogger("holdfast.spark.runtime.session")

LOOPBACK = "127.0.0.1"
STDERR = 2
"""The file descriptor. In a notebook, `sys.stderr` is no file of the process."""
HASH_SEED = "PYTHONHASHSEED"
FINDS_FORMATS = "org.apache.spark.sql.execution.datasources.DataSourceManager"
STREAMING = "org.apache.spark.sql.execution.streaming"

SETTINGS: Mapping[str, str] = {
    "spark.log.level": "WARN",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass": f"{STREAMING}.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    # Each attempt has an id, which the commit log names: a zombie cannot overwrite state.
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
}
LOCAL_SETTINGS: Mapping[str, str] = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.python.daemon.module": "holdfast.spark.runtime.daemon",
    # Saves 50 to 100 ms for each micro-batch. On a local disk its rename is atomic.
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


def session(
    master: str = "local[*]",
    app_name: str = "holdfast",
    config: Mapping[str, str] | None = None,
    *,
    apart: bool = False,
    log: Path | None = None,
) -> "SparkSession":
    """Return a SparkSession that reads and writes `format("holdfast")`.

    If a session exists already, that one is returned, as by Spark's getOrCreate, and only settings
    that can change at run time take effect.

    - `config` holds Spark settings. They override those of Holdfast.
    - `apart=True` starts the JVM in a separate process session, so that signals to this process's
      group, such as Ctrl-C, do not reach it. It still ends when this process ends.
    - `log` is a file, for use with `apart`: the JVM and its Python workers append everything that
      they print. Without it they print to standard error.

    On a cluster, this package is sent to the executors. The libraries that it needs (pyarrow,
    numpy, numba, msgspec, cramjam, fastcrc, obstore) must be installed there, in the Python of this
    process or the one that PYSPARK_PYTHON names. See docs/how-to/run-on-spark-clusters.md.
    """
    builder_class, context = _pyspark()
    wanted = {**SETTINGS, **(LOCAL_SETTINGS if is_local(master) else {}), **(config or {})}
    if not context:
        _prepare_process(cast(MutableMapping[str, str], process_variables()), master, wanted)
        if apart:
            _start_apart({**wanted, "spark.master": master, "spark.app.name": app_name}, log)
    builder = builder_class.master(master).appName(app_name)
    for name, value in wanted.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if not context:
        _silence_second_registration(spark)
        if is_local(master):
            _share_daemon(spark)
    register(spark)
    return spark


def register(spark: "SparkSession", *, ship: bool = True) -> None:
    """Add `format("holdfast")` and `format("holdfast-landed")` to a session that you created.

    On a cluster, and through Spark Connect, this package is also sent to the executors as a zip.
    Pass `ship=False` if it is installed there. The libraries that it needs must be installed there
    in any case. Raises ConfigurationError if the Python of Spark's workers, as found on this
    machine, does not exist, has another version or lacks a library.
    """
    from holdfast.spark.source.data_source import HoldfastSource
    from holdfast.spark.source.landed_source import LandedSource

    context: Any = getattr(spark, "sparkContext", None)  # a session of Spark Connect has none
    if context is None:
        is_local_session = False
    else:
        is_local_session = is_local(context.master)
        check_python(context.pythonExec, has_package=is_local_session)
        ship = ship and "holdfast" not in context.getConf().get("spark.submit.pyFiles", "")
    if ship and not is_local_session:
        ship_package(spark)
    for source in (HoldfastSource, LandedSource):
        _register_source(spark, source)


def _register_source(spark: "SparkSession", source: "type[DataSource]") -> None:
    from pyspark.errors import AnalysisException

    try:
        spark.dataSource.register(source)
    except AnalysisException as refused:
        # Spark has found it in pyspark_holdfast by itself, and some versions keep what they found.
        if refused.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def new_log() -> Path:
    """Create an empty file for Spark's output and return its path."""
    number, name = tempfile.mkstemp(prefix="holdfast-spark-", suffix=".log")
    os.close(number)
    return Path(name)


def is_local(master: str) -> bool:
    """True if driver and executors are one process on this machine."""
    return master == "local" or master.startswith("local[")


def _prepare_process(
    variables: MutableMapping[str, str], master: str, config: Mapping[str, str]
) -> None:
    """Set the environment variables that Spark's start script and its workers read.

    They take these values from the environment and from nowhere else. Does nothing under
    spark-submit, which has started the JVM already.
    """
    if "PYSPARK_GATEWAY_PORT" in variables:
        return
    java = find_java(variables)
    variables["JAVA_HOME"] = str(java.home)
    LOGGER.info("java_found origin=%s major=%d home=%s", java.origin, java.major, java.home)
    if is_local(master):
        variables.setdefault("SPARK_LOCAL_IP", LOOPBACK)
        variables.setdefault(HASH_SEED, "0")
    choose_python(variables, config, master=master)


def _share_daemon(spark: "SparkSession") -> None:
    """Let tasks that read a source and tasks with a Python function share one daemon.

    Spark starts a daemon for each set of environment variables, and gives PYTHONHASHSEED to
    functions only. A second daemon costs 3 s of CPU. Workers of a local session inherit the
    variable from this process.
    """
    cast(dict[str, str], spark.sparkContext.environment).pop(HASH_SEED, None)


def _silence_second_registration(spark: "SparkSession") -> None:
    """Silence the warning that Spark logs at every query because it found our formats twice.

    It also finds them by itself, in `pyspark_holdfast` and `pyspark_holdfast_landed`.
    """
    log4j = cast(Any, spark.sparkContext)._jvm.org.apache.logging.log4j
    with contextlib.suppress(TypeError):  # a Spark whose logs go elsewhere lacks the class
        log4j.core.config.Configurator.setLevel(FINDS_FORMATS, log4j.Level.ERROR)


def _start_apart(settings: Mapping[str, str], log: Path | None) -> None:
    """Start the JVM in a separate process session; the next SparkContext uses it.

    A micro-batch that is running must finish before its query ends, and the JVM runs it. A signal
    to the whole process group (Ctrl-C in a terminal, most process managers) would kill the JVM.
    """
    from pyspark import SparkConf, SparkContext, java_gateway

    context = cast(Any, SparkContext)
    if context._gateway is not None:
        return
    conf = SparkConf()
    for name, value in settings.items():
        conf.set(name, value)
    how: dict[str, Any] = {"start_new_session": True}
    if log is None:
        # Standard output is for the output of the command itself.
        how["stdout"] = STDERR
        gateway = cast(Any, java_gateway).launch_gateway(conf, how)
    else:
        with log.open("ab") as output:
            how |= {"stdout": output, "stderr": output}
            gateway = cast(Any, java_gateway).launch_gateway(conf, how)
    context._ensure_initialized(gateway=gateway)


def _pyspark() -> "tuple[SparkSession.Builder, bool]":
    """Return a session builder, and whether Spark runs in this process already."""
    require("holdfast.spark", "spark")
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    running = cast(object, getattr(SparkContext, "_active_spark_context", None)) is not None
    return SparkSession.Builder(), running
