"""The backup of the how-to, as it is written there, while a broker writes, rewrites and deletes."""

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.formats.reading import read
from tests.peers.holdfast import HoldfastBroker
from tests.peers.process import wait_until

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "how-to" / "back-up-and-restore.md"
PARTITIONS = 3
BACKUPS = 3


class Writer:
    """Writes numbers to each partition, one after the other, until it is told to stop."""

    def __init__(self, bootstrap: str) -> None:
        self.acked = [0] * PARTITIONS
        self._bootstrap = bootstrap
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        settings = {"bootstrap.servers": self._bootstrap, "enable.idempotence": True}
        producer = Producer(settings | {"linger.ms": 0})
        number = 0
        while not self._stop.is_set():
            for partition in range(PARTITIONS):
                producer.produce("orders", str(number).encode(), partition=partition)
            assert producer.flush(60) == 0
            number += 1
            self.acked = [number] * PARTITIONS


def floors(store: Path) -> int:
    """The greatest floor of a data lane."""
    return max((int(path.name) for path in store.glob("floors/0001/*")), default=0)


@pytest.mark.timeout(240)
def test_a_backup_made_beside_a_busy_broker_is_whole_and_has_all_that_was_acknowledged(tmp_path):
    (script,) = [
        s for s in re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.S) if "for pass" in s
    ]
    broker = HoldfastBroker(
        tmp_path / "broker",
        arguments=("--num-partitions", str(PARTITIONS), "--lanes", "1"),
        module="tests.formats.hasty_broker",
    ).start()
    store = Path(broker.store)
    copies: list[tuple[Path, list[int]]] = []
    try:
        with Writer(broker.bootstrap) as writer:
            for number in range(BACKUPS):
                seen = floors(store)
                wait_until(
                    lambda seen=seen: floors(store) > seen,
                    seconds_max=60,
                    what="a floor that moves",
                )
                before = list(writer.acked)
                copy = tmp_path / f"copy-{number}"
                done = subprocess.run(
                    ["sh", "-ec", script],
                    env={
                        **os.environ,
                        "STORE": str(store),
                        "COPY": str(copy),
                        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                    },
                    capture_output=True,
                    text=True,
                    timeout=120,
                    check=False,
                )
                assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
                copies.append((copy, before))
    finally:
        broker.stop()
    for copy, before in copies[-1:]:
        restored = HoldfastBroker(tmp_path / f"{copy.name}-broker", store=str(copy)).start()
        try:
            for partition in range(PARTITIONS):
                found = read(restored.bootstrap, "orders", partition, "read_committed")
                assert found == [str(number).encode() for number in range(len(found))]
                assert len(found) >= before[partition]
        finally:
            restored.stop()
