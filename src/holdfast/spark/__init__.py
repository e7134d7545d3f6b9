"""Holdfast on Spark: the source, stateful builders, sinks and jobs.

`session`, `register` and `pipeline` are the doors; nothing here imports pyspark, or a compiled
kernel, before one of them is called.
"""

from typing import TYPE_CHECKING

from holdfast.errors import ConfigurationError
from holdfast.spark.executors import package_zip
from holdfast.spark.session import register, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from holdfast.spark.builder import Pipeline

__all__ = ["package_zip", "pipeline", "register", "session"]


def pipeline(stream: "DataFrame") -> "Pipeline":
    """Begin a pipeline on a streaming DataFrame: `.dedup(...)`, `.to(...)`, `.start(...)`."""
    if getattr(stream.sparkSession, "sparkContext", None) is None:
        raise ConfigurationError(
            "a pipeline needs a JVM beside its driver, and a session of Spark Connect has none:"
            " start it with `holdfast run`, or in a session that is made without remote(...)"
        )
    from holdfast.spark.builder import Pipeline

    return Pipeline(stream=stream)
