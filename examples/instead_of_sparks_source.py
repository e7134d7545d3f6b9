"""A query that was written for Spark's own Kafka source, moved over by one word.

    python -m examples.instead_of_sparks_source --bootstrap 127.0.0.1:9092 --topic orders \
        --output data/plain --checkpoint data/plain-checkpoint

Everything but the name of the format is as it was: options, columns, trigger, Spark's own sink.
"""

import argparse

import holdfast.spark

FORMAT = "holdfast"  # it was "kafka"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--output", required=True)
    parser.add_argument("--checkpoint", required=True)
    options = parser.parse_args(arguments)

    spark = holdfast.spark.session("local[2]", config={"spark.driver.memory": "1g"})
    records = (
        spark.readStream.format(FORMAT)
        .option("kafka.bootstrap.servers", options.bootstrap)
        .option("subscribe", options.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 10_000)
        .load()
    )
    orders = records.selectExpr(
        "get_json_object(CAST(value AS STRING), '$.id') AS id",
        "partition",
        "offset",
        "timestamp",
    )
    query = (
        orders.writeStream.format("parquet")
        .option("path", options.output)
        .option("checkpointLocation", options.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print("rows in Spark's own Parquet sink:", spark.read.parquet(options.output).count())


if __name__ == "__main__":
    main()
