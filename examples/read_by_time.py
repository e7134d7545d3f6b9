"""Read a span of time from a topic with plain Spark SQL, with no broker running.

    python -m examples.read_by_time --store data/log --topic orders --minutes 10

The options say where to begin and end, so that only objects that can hold records of that span are
read. A topic need not be in the order of its timestamps: the condition in SQL says it exactly.
"""

import argparse
from datetime import UTC, datetime, timedelta

import holdfast.spark

QUERY = """
SELECT partition, count(*) AS records, min(offset) AS first, max(offset) AS last
FROM records
WHERE timestamp >= :since AND timestamp < :until
GROUP BY partition
ORDER BY partition
"""


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", required=True, help="what `holdfast serve --store` has")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long ago it begins")
    options = parser.parse_args(arguments)

    until = datetime.now(UTC)
    since = until - timedelta(minutes=options.minutes)
    spark = holdfast.spark.session("local[2]", config={"spark.driver.memory": "1g"})
    records = (
        spark.read.format("holdfast")
        .option("store", options.store)
        .option("subscribe", options.topic)
        .option("startingTimestamp", round(since.timestamp() * 1000))
        .option("startingOffsetsByTimestampStrategy", "latest")  # a partition with none so new
        .load()
    )
    records.createOrReplaceTempView("records")
    for row in spark.sql(QUERY, {"since": since, "until": until}).collect():
        print(f"partition {row.partition}: {row.records} records, {row.first} to {row.last}")


if __name__ == "__main__":
    main()
