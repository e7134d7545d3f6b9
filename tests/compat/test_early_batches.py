"""A batch that a broker sees before an earlier one of its producer: librdkafka keeps its epoch, and
each record is in the log once, in its order."""

import json
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.compat.early_batches import TOPIC, values_of
from tests.compat.refusing_proxy import SECONDS_MAX, RefusingProxy
from tests.peers.holdfast import HoldfastBroker
from tests.peers.process import free_port, wait_until
from tests.support.librdkafka import SILENT

RECORDS = 6


class Sender:
    """An idempotent librdkafka, and what it says of its epoch."""

    def __init__(self, bootstrap: str) -> None:
        self.delivered: list[int] = []
        self.epochs: set[int] = set()
        self._sent = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                "retry.backoff.ms": 20,
                "statistics.interval.ms": 50,
                "stats_cb": self._look,
                "logger": SILENT,
            }
        )

    def _look(self, statistics: str) -> None:
        self.epochs.add(json.loads(statistics)["eos"]["producer_epoch"])

    def send(self) -> None:
        number = self._sent
        self._sent += 1

        def told(error, message) -> None:
            assert error is None, error
            self.delivered.append(number)

        self._producer.produce(TOPIC, b"%d" % number, partition=0, on_delivery=told)
        self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(SECONDS_MAX) == 0

    def look_at_epoch(self) -> None:
        self.epochs.clear()
        wait_until(
            lambda: self._producer.poll(0.05) >= 0 and bool(self.epochs),
            seconds_max=SECONDS_MAX,
            what="statistics",
        )


def send_with_one_refused(folder: Path, module: str | None) -> tuple[Sender, list[bytes]]:
    port = free_port()
    broker = HoldfastBroker(folder, arguments=["--advertise", f"127.0.0.1:{port}"], module=module)
    broker.start()
    proxy = RefusingProxy(port, broker.port)
    try:
        bootstrap = f"127.0.0.1:{port}"
        admin = AdminClient({"bootstrap.servers": bootstrap, "logger": SILENT})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(SECONDS_MAX)
        sender = Sender(bootstrap)
        for number in range(RECORDS):
            if number in (
                0,
                3,
            ):  # of a producer that the partition does not know, and of one it does
                proxy.refuse_next()
                sender.send()
                assert proxy.is_held.wait(SECONDS_MAX)
                proxy.is_held.clear()
            else:
                sender.send()
                sender.flush()
        sender.look_at_epoch()
        return sender, values_of(bootstrap)
    finally:
        proxy.close()
        broker.stop()


def test_librdkafka_keeps_its_epoch_where_a_batch_came_before_one_that_was_refused(tmp_path: Path):
    sender, values = send_with_one_refused(tmp_path, None)
    assert sender.epochs == {0}
    assert sender.delivered == list(range(RECORDS))
    assert values == [b"%d" % number for number in range(RECORDS)]


def test_librdkafka_takes_a_new_epoch_where_that_batch_is_called_out_of_order(tmp_path: Path):
    sender, _ = send_with_one_refused(tmp_path, "tests.compat.hasty_broker")
    assert max(sender.epochs) > 0
