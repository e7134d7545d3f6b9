"""The Spark session of a command: its start, its log, and what signals do meanwhile.

Runs on the driver. Must never start Spark in the main thread: PySpark would replace the handler of
SIGINT there, by one that fails in the middle of a start.
"""

import queue
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from holdfast.errors import ConfigurationError
from holdfast.spark.pipelines.preflight import check_master
from holdfast.spark.runtime.executors import check_executors, package_zip
from holdfast.spark.runtime.session import is_local, new_log, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOP_LOOK_S = 0.2
COMMAND_SETTINGS: Mapping[str, str] = {
    # Short tracebacks are an environment variable of some workers only, and so would start a second
    # daemon (see session._share_daemon). A command shows no tracebacks: it names the line of the
    # user's file in which an error was raised.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
}


def job_session(
    master: str,
    name: str,
    conf: Mapping[str, str],
    *,
    tell: Callable[[str], None],
    verbose: bool = False,
    stop: threading.Event | None = None,
) -> "SparkSession":
    """Start Spark for a command, so that signals such as Ctrl-C do not reach it.

    Raises KeyboardInterrupt if `stop` is set first, and on Ctrl-C unless the caller handles that.

    What Spark and its workers print goes to a file, whose path `tell` shows; with `verbose` it goes
    to the terminal. Executors of a cluster get this package. A cluster that does not answer, or
    whose executors cannot run Holdfast's tasks, is reported before any work starts.
    """
    check_master(master)
    wanted = {**COMMAND_SETTINGS, **conf}
    if not is_local(master) and "spark.submit.pyFiles" not in wanted:
        wanted["spark.submit.pyFiles"] = str(package_zip())
    log = None if verbose else new_log()
    if log is not None:
        tell(f"Spark's log: {log}")
        tell("starting Spark, which may take half a minute")
    start = partial(session, master, app_name=name, config=wanted, apart=True, log=log)
    spark = _start_in_thread(start, stop)
    if not is_local(master):
        try:
            check_executors(spark)
        except ConfigurationError:
            spark.stop()
            raise
    return spark


def _start_in_thread(
    start: Callable[[], "SparkSession"], stop: threading.Event | None
) -> "SparkSession":
    """Start Spark in a thread. In the main thread, Spark would replace the handler of SIGINT by one
    that fails in the middle of its start."""
    done: queue.SimpleQueue[SparkSession | BaseException] = queue.SimpleQueue()

    def work() -> None:
        try:
            done.put(start())
        except BaseException as error:
            done.put(error)

    threading.Thread(target=work, name="holdfast-spark-start", daemon=True).start()
    while stop is None or not stop.is_set():
        try:
            found = done.get(timeout=STOP_LOOK_S)
        except queue.Empty:
            continue
        if isinstance(found, BaseException):
            raise found
        # This makes the session the active one of the calling thread, as its start would have done.
        cast(Any, found).createDataFrame([], "ignored int")
        return found
    raise KeyboardInterrupt
