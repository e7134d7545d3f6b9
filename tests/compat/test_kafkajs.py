"""kafkajs: its idempotent producer puts a new timestamp into each attempt to send a batch."""

import json
import subprocess
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.compat.early_batches import values_of
from tests.compat.losing_proxy import LosingProxy
from tests.peers.holdfast import HoldfastBroker
from tests.peers.jars import PeerUnavailable, node_program
from tests.peers.process import free_port
from tests.support.librdkafka import SILENT

TOPIC = "early"
SECONDS_MAX = 60


def test_a_kafkajs_producer_that_lost_an_answer_is_told_of_its_record_once_and_goes_on(
    tmp_path: Path,
):
    try:
        command = node_program("idempotent.js")
    except PeerUnavailable as unavailable:
        pytest.skip(str(unavailable))
    port = free_port()
    broker = HoldfastBroker(tmp_path, arguments=["--advertise", f"127.0.0.1:{port}"])
    broker.start()
    proxy = LosingProxy(port, broker.port)
    try:
        bootstrap = f"127.0.0.1:{port}"
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "logger": SILENT})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(SECONDS_MAX)
        proxy.lose_next()
        done = subprocess.run(
            [*command, bootstrap, TOPIC, "first", "second"],
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        told = [json.loads(line) for line in done.stdout.splitlines()]
        assert told == [{"value": "first", "offset": 0}, {"value": "second", "offset": 1}], done
        assert proxy.produces == 3  # the first record went out twice
        assert values_of(broker.bootstrap) == [b"first", b"second"]
    finally:
        proxy.close()
        broker.stop()
