"""Holdfast on Spark: the source, stateful builders, sinks and jobs.

`session`, `register` and `pipeline` are the doors; nothing here imports pyspark, or a compiled
kernel, before one of them is called.
"""

from typing import TYPE_CHECKING

from holdfast.spark.session import package_zip, register, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from holdfast.spark.builder import Pipeline

__all__ = ["package_zip", "pipeline", "register", "session"]


def pipeline(stream: "DataFrame") -> "Pipeline":
    """Begin a pipeline on a streaming DataFrame: `.dedup(...)`, `.to(...)`, `.start(...)`."""
    from holdfast.spark.builder import Pipeline

    return Pipeline(stream=stream)
