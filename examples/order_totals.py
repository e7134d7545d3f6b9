"""The columns that order_totals.toml aggregates, out of orders as JSON.

    holdfast run examples/order_totals.toml --once

order_totals.toml says what must be running.
"""

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, get_json_object


def pipeline(frame: DataFrame) -> DataFrame:
    body = col("value").cast("string")
    return frame.select(
        get_json_object(body, "$.id").alias("id"),
        get_json_object(body, "$.amount").cast("bigint").alias("amount"),
        "timestamp",
    )
