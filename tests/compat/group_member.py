"""A process that is a member of a consumer group until it is killed; prints what it is assigned."""

import sys

from confluent_kafka import Consumer


def main(bootstrap: str, group: str, topic: str) -> None:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": "consumer"}
    )
    consumer.subscribe([topic])
    before = -1
    while True:
        consumer.poll(0.1)
        count = len(consumer.assignment())
        if count != before:
            print(f"assigned {count}", flush=True)
            before = count


if __name__ == "__main__":
    main(*sys.argv[1:])
