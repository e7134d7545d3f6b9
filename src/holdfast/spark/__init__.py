"""Holdfast on Spark: sessions, the source and sink `holdfast`, and exactly-once pipelines.

`session()` starts a SparkSession, `register(spark)` prepares one of yours, `pipeline(stream)`
builds a pipeline, and `package_zip()` packs this package for the executors of a cluster. Importing
this module must never import pyspark or a compiled kernel: the functions do that when they are
called.
"""

from typing import TYPE_CHECKING

from holdfast.errors import ConfigurationError
from holdfast.spark.runtime.executors import package_zip
from holdfast.spark.runtime.session import register, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from holdfast.spark.pipelines.builder import Pipeline

__all__ = ["package_zip", "pipeline", "register", "session"]


def pipeline(stream: "DataFrame") -> "Pipeline":
    """Start building a pipeline on a streaming DataFrame.

    Add at most one stateful step and an output, then start the query:

        pipeline(stream).dedup(by="key").to("s3://lake", sink_id="orders").start(checkpoint)

    Source offsets, state and output of each micro-batch become visible together, exactly once.
    Raises ConfigurationError in a session of Spark Connect, which has no JVM beside the driver.
    """
    if getattr(stream.sparkSession, "sparkContext", None) is None:
        raise ConfigurationError(
            "a pipeline needs a JVM beside its driver, and a session of Spark Connect has none:"
            " start it with `holdfast run`, or in a session that is made without remote(...)"
        )
    from holdfast.spark.pipelines.builder import Pipeline

    return Pipeline(stream=stream)
