"""Spark's daemon of Python workers, with the modules that they need loaded before it forks them.

It is the `spark.python.daemon.module` of local sessions. To import numba, pyarrow and the kernels
costs a worker more than a second of CPU, and Spark forks workers often: for each look at a source,
and again after they were idle. Owns the list of what is loaded, and that a worker ends silently if
its rows are not wanted any more. Must never open anything, nor start a thread: forks would share
both.
"""

import gc
import importlib
import socket
import sys
from collections.abc import Callable

Worker = Callable[[socket.socket, bool], int]
TASKS = "pyspark.worker"
FOR_TASKS = (
    "pyspark.worker",
    "pyarrow",
    "holdfast.spark.source.data_source",
    "holdfast.spark.ledger.ledger_sink",
    "holdfast.spark.source.store_read",
    "holdfast.spark.source.kafka_read",
    "holdfast.columnar.json_field",
)
FOR_PLANS = ("pyarrow", "holdfast.spark.source.data_source", "holdfast.spark.source.store_input")
SINKS = (
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.worker.python_streaming_sink_runner",
)
FOR_SINKS = ("pyarrow", "holdfast.spark.source.data_source", "holdfast.spark.topic.batch")


def load(worker_module: str) -> None:
    """Import what workers of this kind use, and compile the kernels."""
    needed = FOR_SINKS if worker_module in SINKS else FOR_PLANS
    for name in FOR_TASKS if worker_module == TASKS else (worker_module, *needed):
        importlib.import_module(name)
    if worker_module == TASKS:
        from holdfast.columnar.decode import decode
        from holdfast.columnar.hashing import hash_columns
        from holdfast.records.record import Record, encode_batch

        one = encode_batch([Record(0, 0, b"key", b"value")])
        for batch in decode([one], topic="", partition=0, start_offset=0, end_offset=1):
            hash_columns([batch.column("key")], 0)


def ending_quietly(worker: Worker) -> Worker:
    """Return a worker that ends silently if Spark closes the connection, as after a LIMIT.

    Spark's own worker prints a traceback then, in the middle of a query that succeeds.
    """

    def work(sock: socket.socket, authenticated: bool) -> int:
        try:
            return worker(sock, authenticated)
        except BrokenPipeError:
            return 1

    return work


def main() -> None:
    from pyspark import daemon

    daemon.worker = ending_quietly(daemon.worker)
    load(sys.argv[1] if len(sys.argv) > 1 else TASKS)
    # Spark's workers collect garbage after each task. That takes 50 to 100 ms if the collector
    # looks at all of this.
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
