"""`format("holdfast-landed")` for every Spark session whose Python has this package installed.

Spark takes one DefaultSource from each module: see pyspark_holdfast. Must never fail to import.
"""

from holdfast.extras import is_installed

if is_installed("spark"):
    from holdfast.spark.landed_source import LandedSource as DefaultSource

    __all__ = ["DefaultSource"]
