"""Spark's daemon of Python workers, with what they need loaded before it forks them.

`spark.python.daemon.module` of local sessions. A worker imports numba, pyarrow and the kernels for
more than a second of CPU, and Spark forks workers often: for each look at a source, and again when
they were idle. Owns the list of what is loaded, and that a worker whose rows nobody wants any more
ends without a word. Must never open anything, nor start a thread: both would be shared by forks.
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
    "holdfast.spark.source",
    "holdfast.spark.ledger_sink",
    "holdfast.spark.store_read",
    "holdfast.spark.kafka_read",
    "holdfast.columnar.json_field",
)
FOR_PLANS = ("pyarrow", "holdfast.spark.source", "holdfast.spark.store_input")
SINKS = (
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.worker.python_streaming_sink_runner",
)
FOR_SINKS = ("pyarrow", "holdfast.spark.source", "holdfast.spark.topic_batch")


def load(worker_module: str) -> None:
    """Import what workers of this kind use, and have the kernels compiled."""
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
    """A worker that ends where Spark has closed the connection, as it does after a LIMIT.

    Spark's own prints a traceback then, in the middle of a query that succeeds.
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
    # Spark's workers collect garbage after each task: 50 to 100 ms, if all of this is looked at.
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
