"""A SparkSession that is ready for Holdfast: Java found, settings that hold, sources registered.

Owns the settings of a session that Holdfast starts. Imports pyspark only when it is called, so
that the pure modules of this package stay light. Must never override what the caller set.
"""

import hashlib
import logging
import sys
import tempfile
import zipfile
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from holdfast.environment import process_variables
from holdfast.errors import ConfigurationError
from holdfast.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGGER = logging.getLogger("holdfast.spark.session")

LOOPBACK = "127.0.0.1"
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
) -> "SparkSession":
    """A SparkSession with the source "holdfast"; `config` wins over every setting of ours.

    Where a session is already there, it is that one, as with Spark's getOrCreate: only settings
    that can change at run time reach it. With `apart`, a JVM that is started here gets no signals
    of this process's group, as by Ctrl-C; it ends when this process does.

    On a cluster, the executors must be able to import this package and what it needs (pyarrow,
    numpy, numba, msgspec, cramjam, fastcrc, obstore). Either they have the same environment
    (`pip install "holdfast[spark]"` in the image, or spark.archives with a packed environment), or
    they have those libraries already and get the package itself as a zip:
    `session("spark://host:7077", config={"spark.submit.pyFiles": str(package_zip())})`.
    """
    builder_class, context = _pyspark()
    wanted = {**SETTINGS, **(LOCAL_SETTINGS if is_local(master) else {}), **(config or {})}
    if not context:
        _prepare_process(cast(MutableMapping[str, str], process_variables()), master)
        if apart:
            _start_apart({**wanted, "spark.master": master, "spark.app.name": app_name})
    builder = builder_class.master(master).appName(app_name)
    for name, value in wanted.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def register(spark: "SparkSession") -> None:
    """Make `format("holdfast")` and `format("holdfast-landed")` known to a session of yours."""
    from holdfast.spark.landed_source import LandedSource
    from holdfast.spark.source import HoldfastSource

    spark.dataSource.register(HoldfastSource)
    spark.dataSource.register(LandedSource)


def package_zip(folder: Path | None = None) -> Path:
    """This package as a zip for spark.submit.pyFiles or spark.sparkContext.addPyFile.

    The same source gives the same name and bytes. Libraries that the package needs are not in it.
    """
    package = Path(__file__).parent.parent
    sources = sorted(path for path in package.rglob("*") if path.suffix in (".py", ".typed"))
    if not sources:
        raise ConfigurationError(f"{package} has no files: Holdfast itself runs from a zip")
    bodies = [(str(path.relative_to(package.parent)), path.read_bytes()) for path in sources]
    digest = hashlib.sha256(repr(bodies).encode()).hexdigest()[:16]
    target = (folder or Path(tempfile.mkdtemp(prefix="holdfast-"))) / f"holdfast-{digest}.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in bodies:
            archive.writestr(zipfile.ZipInfo(name), body, zipfile.ZIP_DEFLATED)
    return target


def is_local(master: str) -> bool:
    """Whether driver and executors are one process on this machine."""
    return master == "local" or master.startswith("local[")


def _prepare_process(variables: MutableMapping[str, str], master: str) -> None:
    """Spark's start script and its workers read these from the environment, and nowhere else."""
    if "PYSPARK_GATEWAY_PORT" in variables:
        return
    java = find_java(variables)
    variables["JAVA_HOME"] = str(java.home)
    LOGGER.info("java_found origin=%s major=%d home=%s", java.origin, java.major, java.home)
    if is_local(master):
        variables.setdefault("SPARK_LOCAL_IP", LOOPBACK)
        variables.setdefault("PYSPARK_PYTHON", sys.executable)


def _start_apart(settings: Mapping[str, str]) -> None:
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
    gateway = cast(Any, java_gateway).launch_gateway(conf, {"start_new_session": True})
    context._ensure_initialized(gateway=gateway)


def _pyspark() -> "tuple[SparkSession.Builder, bool]":
    """The builder, and whether this process has a Spark already."""
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ImportError as missing:
        raise ConfigurationError(
            f'pyspark is not installed ({missing}): pip install "holdfast[spark]"'
        ) from missing
    running = cast(object, getattr(SparkContext, "_active_spark_context", None)) is not None
    return SparkSession.Builder(), running
