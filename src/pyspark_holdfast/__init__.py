"""Provides `format("holdfast")` to every Spark session whose Python has this package installed.

Spark imports the top-level modules called pyspark_* and registers the DefaultSource of each. Must
never fail to import: Spark would then find no Python data source at all.
"""

from holdfast.extras import is_installed

if is_installed("spark"):
    from holdfast.spark.source.data_source import HoldfastSource as DefaultSource

    __all__ = ["DefaultSource"]
