"""A SparkSession that is ready for Holdfast: Java found, settings that hold, sources registered.

Owns the settings of a session that Holdfast starts. Imports pyspark only when it is called, so
that the pure modules of this package stay light. Must never override what the caller set.
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
from holdfast.spark.executors import check_python, choose_python, ship_package
from holdfast.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

LOGGER = logging.getLogger("holdfast.spark.session")

LOOPBACK = "127.0.0.1"
STDERR = 2
"""By its number: in a notebook sys.stderr is no file of the process."""
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
    # An id for each attempt, named by the commit log: a zombie cannot overwrite state.
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
}
LOCAL_SETTINGS: Mapping[str, str] = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.python.daemon.module": "holdfast.spark.daemon",
    # Quicker by 50 to 100 ms for each micro-batch; on a local disk its rename is atomic.
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
    """A SparkSession with the source "holdfast"; `config` wins over every setting of ours.

    Where a session is already there, it is that one, as with Spark's getOrCreate: only settings
    that can change at run time reach it. With `apart`, a JVM that is started here gets no signals
    of this process's group, as by Ctrl-C; it ends when this process does. With `log` as well, all
    that it and its Python workers print goes to the end of that file; else to standard error.

    On a cluster the executors are given this package. The libraries that it needs must be there
    (pyarrow, numpy, numba, msgspec, cramjam, fastcrc, obstore), for the Python of this process or
    the one that PYSPARK_PYTHON names: docs/how-to/run-on-spark-clusters.md.
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
    """Make `format("holdfast")` and `format("holdfast-landed")` known to a session of yours.

    On a cluster, and through Spark Connect, the executors are given this package as a zip; not with
    `ship=False`, for those that have it installed. The libraries that it needs must be there:
    ConfigurationError says where they are not.
    """
    from holdfast.spark.landed_source import LandedSource
    from holdfast.spark.source import HoldfastSource

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
        # Spark has found it by itself, in pyspark_holdfast, and some versions keep what they found.
        if refused.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def new_log() -> Path:
    """An empty file for what a Spark prints."""
    number, name = tempfile.mkstemp(prefix="holdfast-spark-", suffix=".log")
    os.close(number)
    return Path(name)


def is_local(master: str) -> bool:
    """Whether driver and executors are one process on this machine."""
    return master == "local" or master.startswith("local[")


def _prepare_process(
    variables: MutableMapping[str, str], master: str, config: Mapping[str, str]
) -> None:
    """Spark's start script and its workers read these from the environment, and nowhere else."""
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

    Spark starts a daemon for each set of variables, and gives this one to functions only. A second
    daemon costs 3 s of CPU. Workers of a local session inherit the variable from this process.
    """
    cast(dict[str, str], spark.sparkContext.environment).pop(HASH_SEED, None)


def _silence_second_registration(spark: "SparkSession") -> None:
    """Spark finds our formats by itself as well, and warns at every query that there are two."""
    log4j = cast(Any, spark.sparkContext)._jvm.org.apache.logging.log4j
    with contextlib.suppress(TypeError):  # a Spark whose logs go elsewhere lacks the class
        log4j.core.config.Configurator.setLevel(FINDS_FORMATS, log4j.Level.ERROR)


def _start_apart(settings: Mapping[str, str], log: Path | None) -> None:
    """Start the JVM in a session of its own; the SparkContext that comes next takes it.

    A micro-batch that runs must end before the query does, and the JVM runs it: a signal to the
    whole group (a terminal's Ctrl-C, most process managers) would take it away.
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
        # Standard output is for what the command itself has to say.
        how["stdout"] = STDERR
        gateway = cast(Any, java_gateway).launch_gateway(conf, how)
    else:
        with log.open("ab") as output:
            how |= {"stdout": output, "stderr": output}
            gateway = cast(Any, java_gateway).launch_gateway(conf, how)
    context._ensure_initialized(gateway=gateway)


def _pyspark() -> "tuple[SparkSession.Builder, bool]":
    """The builder, and whether this process has a Spark already."""
    require("holdfast.spark", "spark")
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    running = cast(object, getattr(SparkContext, "_active_spark_context", None)) is not None
    return SparkSession.Builder(), running
