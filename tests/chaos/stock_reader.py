"""A query with Spark's own Kafka source, as its users write it, that lands what it reads as JSON.

Started as a process: `python -m tests.chaos.stock_reader BOOTSTRAP TOPIC FOLDER`. Ends with 0 once
FOLDER/stop is there, and with 2, and the reason, where the query ended by itself.
"""

import sys
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.peers.jars import spark_kafka_jars

ABORTED = 2


def main() -> int:
    bootstrap, topic, name = sys.argv[1:]
    folder = Path(name)
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("stock reader")
        .config("spark.jars", ",".join(map(str, spark_kafka_jars())))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    rows = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "true")
        .load()
        .selectExpr("CAST(value AS STRING) AS value", "partition", "offset")
    )
    query = (
        rows.writeStream.format("json")
        .option("path", str(folder / "landed"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="500 milliseconds")
        .start()
    )
    print("the query has started", flush=True)
    try:
        while not (folder / "stop").exists():
            if query.awaitTermination(1):
                print("the query ended", flush=True)
                return ABORTED
    except StreamingQueryException as error:
        print(f"the query was aborted: {error}"[:4000], flush=True)
        return ABORTED
    query.stop()
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
