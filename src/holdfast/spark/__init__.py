"""Holdfast on Spark: the source, stateful builders, sinks and jobs.

`session` and `register` are the doors; nothing here imports pyspark before one of them is called.
"""

from holdfast.spark.session import package_zip, register, session

__all__ = ["package_zip", "register", "session"]
