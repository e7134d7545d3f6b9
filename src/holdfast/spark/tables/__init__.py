"""Tables that follow a ledger: Delta and Iceberg, through their Python writers, without a jar.

Pass DeltaTable() or IcebergTable(...) as `tables` to `Pipeline.to`. `catch_up` brings tables up to
date without the pipeline.
"""

from holdfast.spark.tables.delta import DeltaTable
from holdfast.spark.tables.follower import catch_up
from holdfast.spark.tables.iceberg import IcebergTable

__all__ = ["DeltaTable", "IcebergTable", "catch_up"]
