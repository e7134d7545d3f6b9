"""Write a small store with some of everything, with the release whose source is on PYTHONPATH.

    PYTHONPATH=<release>/src:. python -m tests.formats.write_store FOLDER

leaves FOLDER/store. `tests/formats/<version>.tar.xz` was made so with the code of that release:
`tar -C FOLDER -cJf <version>.tar.xz store`. Nothing in it may depend on the newest code.
"""

import contextlib
import sys
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.peers.holdfast import HoldfastBroker

RECORDS = 40
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def write(folder: Path) -> None:
    module = "tests.formats.hasty_broker"
    arguments = ("--lanes", "2", "--override", "group.initial.rebalance.delay.ms=0")
    broker = HoldfastBroker(folder, arguments=arguments, module=module).start()
    try:
        _topics(broker.bootstrap)
        _records(broker.bootstrap)
        _transactions(broker.bootstrap)
        _groups(broker.bootstrap)
        _wait_for_segments(broker)
    finally:
        broker.stop()
    broker.start()
    _produce(broker.bootstrap, "orders", 0, [b"after a restart"])
    broker.kill()


def _topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [
        NewTopic("orders", 3, config={"retention.ms": "-1"}),
        NewTopic("payments", 2, config={"retention.ms": "-1"}),
        NewTopic("gone", 1),
    ]
    for future in admin.create_topics(wanted).values():
        future.result(30)
    for future in admin.delete_topics(["gone"]).values():
        future.result(30)


def _produce(bootstrap: str, topic: str, partition: int, values: list[bytes], **more: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True} | more)
    for value in values:
        producer.produce(topic, value, key=b"k", partition=partition, headers=[("h", b"v")])
        producer.poll(0)
    assert producer.flush(60) == 0


def _records(bootstrap: str) -> None:
    for codec in CODECS:
        for partition in range(3):
            for part in range(0, RECORDS, 10):
                values = [f"{codec} {partition} {part + i}".encode() for i in range(10)]
                _produce(bootstrap, "orders", partition, values, **{"compression.type": codec})


def _transactions(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "payer"})
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce("payments", f"payment {number}".encode(), partition=partition)
        producer.flush(30)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)


def _groups(bootstrap: str) -> None:
    for protocol in ("classic", "consumer"):
        settings = {"bootstrap.servers": bootstrap, "group.id": f"{protocol}-readers"}
        settings |= {"group.protocol": protocol, "auto.offset.reset": "earliest"}
        settings |= {"enable.auto.commit": "false"}
        consumer = Consumer(settings)
        consumer.subscribe(["orders"])
        assert consumer.poll(30) is not None
        here = consumer.assignment()
        consumer.commit(
            offsets=[TopicPartition(each.topic, each.partition, 7) for each in here],
            asynchronous=False,
        )
        consumer.close()


def _wait_for_segments(broker: HoldfastBroker) -> None:
    store = Path(broker.store)
    broker.process.wait_until(
        lambda: list(store.glob("topics/*/*/*")) and list(store.glob("floors/*/*")),
        seconds_max=60,
        what="segments and a floor",
    )


if __name__ == "__main__":
    with contextlib.chdir(Path(__file__).parent.parent.parent):
        write(Path(sys.argv[1]))
