"""Produce orders as JSON, one in five of them a repeat of an earlier one.

    pip install . confluent-kafka
    holdfast serve --store data/log    # in another terminal
    python -m examples.produce_orders

Options: --bootstrap HOST:PORT, --topic NAME, --count RECORDS.
"""

import argparse
import json
import random

from confluent_kafka import Producer


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first order")
    options = parser.parse_args(arguments)

    producer = Producer({"bootstrap.servers": options.bootstrap, "enable.idempotence": True})
    acked: list[str] = []
    for number in range(options.first, options.first + options.count):
        is_repeat = number % 5 == 4
        known = random.randrange(number // 5 * 5, number) if is_repeat else number
        order = {"id": f"order-{known}", "amount": known % 97, "sent": number}
        producer.produce(
            options.topic,
            value=json.dumps(order),
            on_delivery=lambda error, _, name=order["id"]: error or acked.append(name),
        )
        producer.poll(0)
    if producer.flush(60):
        raise SystemExit("not all records were acknowledged in 60 s")
    print(f"{len(acked)} records acknowledged, of {len(set(acked))} orders")


if __name__ == "__main__":
    main()
