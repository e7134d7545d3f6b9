"""A sink and record batches that nobody can read: set aside whole, and everything else lands."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.peers.holdfast import HoldfastBroker
from tests.peers.junk import bomb_batch, junk_batch, produce_raw

from holdfast.environment import SystemEnvironment
from holdfast.landing import blocking
from holdfast.landing.landed import records
from holdfast.store.read_only import open_read_only

HOLDFAST = Path(sys.executable).parent / "holdfast"


def holdfast(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(HOLDFAST), *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def landed_rows(lake: Path, *, dead: bool) -> list[dict[str, Any]]:
    async def read() -> list[dict[str, Any]]:
        environment = SystemEnvironment()
        store = open_read_only(str(lake), environment=environment)
        found = [
            row
            async for batch in records(store, environment=environment, dead=dead)
            for row in batch.to_pylist()
        ]
        await store.close()
        return found

    return blocking.run(read())


def test_batches_that_cannot_be_read_are_dead_letters_and_all_else_lands(
    holdfast_broker: HoldfastBroker, tmp_path: Path
):
    topic = "sink.unreadable"
    admin = AdminClient({"bootstrap.servers": holdfast_broker.bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": holdfast_broker.bootstrap})

    def produce(*values: bytes) -> None:
        for value in values:
            for partition in range(2):
                producer.produce(topic, value=value, partition=partition)
        assert producer.flush(30) == 0

    junk, bomb = junk_batch(), bomb_batch()
    assert len(bomb) < 1_048_588, "it must fit the default max.message.bytes"
    produce(b'{"n":0}', b'{"n":1}')
    produce_raw(holdfast_broker.bootstrap, topic, 0, [junk, bomb])
    produce(b'{"n":2}')
    (tmp_path / "sink.toml").write_text(
        f'[source]\nbootstrap.servers = "{holdfast_broker.bootstrap}"\ngroup.id = "{topic}"\n'
        f'topics = ["{topic}"]\n[output]\nto = "lake"\n'
    )
    done = holdfast("sink", "sink.toml", "--once", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lake = tmp_path / "lake"
    values = [row["value"] for row in landed_rows(lake, dead=False)]
    assert sorted(values) == sorted([b'{"n":0}', b'{"n":1}', b'{"n":2}'] * 2)
    first, second = landed_rows(lake, dead=True)
    assert (first["offset"], second["offset"]) == (2, 5)
    assert first["headers"][1] == {"key": "holdfast.last_offset", "value": b"4"}
    # The broker stamps offset and leader epoch, which stand before the CRC.
    assert first["value"][16:] == junk[16:]
    assert second["value"][16:] == bomb[16:]
    assert "its record batch cannot be read" in first["reason"]
    assert "67108864" in second["reason"]
    shown = holdfast("landed", "lake", "--verify", "--json", cwd=tmp_path)
    assert shown.returncode == 0, shown.stdout
    report = json.loads(shown.stdout)
    chains = {(row["partition"], row["is_dead"]): row for row in report["chains"]}
    assert chains[0, False]["next_offset"] == 9
    assert chains[0, True]["reasons"] == {"its record batch cannot be read": 2}
    verified = holdfast("inspect", "--store", holdfast_broker.store, "--verify", cwd=tmp_path)
    assert verified.returncode == 0, verified.stderr
    assert "the record batch at offsets 2 to 4 cannot be read" in verified.stdout
    assert "the record batch at offsets 5 to 7 cannot be read" in verified.stdout
    assert "Traceback" not in verified.stderr
