"""Provides `format("holdfast-landed")` to Spark sessions whose Python has this package installed.

Spark takes one DefaultSource from each module (see pyspark_holdfast). Must never fail to import.
"""

from holdfast.extras import is_installed

if is_installed("spark"):
    from holdfast.spark.source.landed_source import LandedSource as DefaultSource

    __all__ = ["DefaultSource"]
