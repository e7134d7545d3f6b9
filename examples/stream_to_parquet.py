"""Stream a topic into Parquet files on Spark, each id once, whatever is killed in between.

    pip install '.[spark]' confluent-kafka
    python -m examples.produce_orders
    python -m examples.stream_to_parquet --store data/log --lake data/lake \
        --checkpoint data/checkpoint --once

Without --once it goes on as a stream. It reads the store itself: no broker is needed. With
--bootstrap HOST:PORT it reads from any Kafka. Values are JSON objects with a field `id`.
"""

import argparse

import holdfast.spark
from holdfast.spark import pipeline


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--store", help="what `holdfast serve --store` has")
    source.add_argument("--bootstrap", help="a Kafka, as HOST:PORT")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--lake", required=True, help="where the files go: a directory, s3://...")
    parser.add_argument("--checkpoint", required=True, help="a folder for Spark")
    parser.add_argument("--once", action="store_true", help="stop at what is there now")
    options = parser.parse_args(arguments)

    spark = holdfast.spark.session("local[2]", config={"spark.driver.memory": "1g"})
    where = {"store": options.store} if options.store else {}
    where |= {"kafka.bootstrap.servers": options.bootstrap} if options.bootstrap else {}
    stream = (
        spark.readStream.format("holdfast")
        .options(**where)
        .option("subscribe", options.topic)
        .option("startingOffsets", "earliest")
        .option("rows", "ranges")  # tasks read the records themselves: none passes through the JVM
        .load()
    )
    running = (
        pipeline(stream)
        .dedup(by="value.$.id")
        .to(options.lake, sink_id=options.topic)
        .start(
            options.checkpoint,
            trigger={"availableNow": True} if options.once else {"processingTime": "1 second"},
        )
    )
    running.query.awaitTermination()
    print("rows read, kept and held back as duplicates:", *_totals(running.sink.totals))


def _totals(totals: dict[str, int]) -> list[int]:
    return [totals.get(name, 0) for name in ("rows", "kept", "duplicates")]


if __name__ == "__main__":
    main()
