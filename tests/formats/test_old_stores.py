"""A store that the last release wrote is read and served; one of a newer format is refused."""

import asyncio
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient
from tests.formats.reading import read
from tests.formats.write_store import CODECS, RECORDS
from tests.peers.holdfast import HoldfastBroker

from holdfast.cluster.facts import FORMAT_VERSION, ClusterCreated, FormatRaised, encode_facts
from holdfast.cluster.state import ControlState, ControlStateKind
from holdfast.environment import SystemEnvironment
from holdfast.errors import NewerFormat
from holdfast.identifiers import CONTROL_LANE
from holdfast.lane.claim import put_entry
from holdfast.lane.entry import EntryKind, seal
from holdfast.lane.recovery import recover
from holdfast.store.directory import DirectoryStore

HOLDFAST = str(Path(sys.executable).parent / "holdfast")
ARCHIVES = sorted(Path(__file__).parent.glob("*.tar.xz"))
ORDERS = [
    [f"{codec} {partition} {i}".encode() for codec in CODECS for i in range(RECORDS)]
    for partition in range(3)
]
ORDERS[0].append(b"after a restart")


def unpack(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / "store"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [HOLDFAST, *words], capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_all_that_an_earlier_release_wrote_is_there_and_can_be_gone_on_with(archive, tmp_path):
    store = unpack(archive, tmp_path)
    verified = run("inspect", "--store", str(store), "--verify", "--json")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert json.loads(verified.stdout)["survey"]["format_version"] == 1
    broker = HoldfastBroker(tmp_path, store=str(store)).start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        assert set(admin.list_topics(timeout=30).topics) == {"orders", "payments"}
        for partition in range(3):
            assert (
                read(broker.bootstrap, "orders", partition, "read_committed") == ORDERS[partition]
            )
        for partition in range(2):
            committed = [b"payment 0", b"payment 2", b"payment 4"]
            assert read(broker.bootstrap, "payments", partition, "read_committed") == committed
            assert len(read(broker.bootstrap, "payments", partition, "read_uncommitted")) == 6
        for group in ("classic-readers", "consumer-readers"):
            asked = [ConsumerGroupTopicPartitions(group)]
            (future,) = admin.list_consumer_group_offsets(asked).values()
            rows = future.result(30).topic_partitions
            assert {(row.partition, row.offset) for row in rows} == {(0, 7), (1, 7), (2, 7)}, group
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "payer"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("payments", b"one more", partition=0)
        producer.commit_transaction(30)
        assert read(broker.bootstrap, "payments", 0, "read_committed")[-1] == b"one more"
    finally:
        broker.stop()
    assert run("inspect", "--store", str(store), "--verify").returncode == 0


async def raise_format(path: Path, version: int) -> None:
    """Put the fact as the owner of the control lane would."""
    store, environment = DirectoryStore(str(path)), SystemEnvironment()
    cursor = (await recover(store, environment, CONTROL_LANE, ControlStateKind())).cursor
    assert cursor.writer is not None
    entry = seal(
        kind=EntryKind.DATA,
        lane=CONTROL_LANE,
        number=cursor.next_number,
        claim=cursor.claim,
        writer=cursor.writer,
        previous=cursor.hash,
        facts=encode_facts([FormatRaised(version)]),
        payload=(),
        written_ms=environment.now_ms(),
    )
    await put_entry(store, environment, entry)
    await store.close()


def test_a_store_of_a_newer_format_is_refused_with_both_versions_and_is_not_touched(tmp_path):
    store = unpack(ARCHIVES[-1], tmp_path)
    asyncio.run(raise_format(store, FORMAT_VERSION + 1))
    before = sorted(path.name for path in store.rglob("*"))
    for words in (
        ("serve", "--listen", "127.0.0.1:0", "--log-level", "ERROR"),
        ("inspect",),
        ("inspect", "--verify"),
    ):
        done = run(*words, "--store", str(store))
        assert done.returncode == 1, words
        (line,) = done.stderr.splitlines()
        assert f"the store has format {FORMAT_VERSION + 1}" in line
        assert f"reads formats up to {FORMAT_VERSION}: use the release that wrote the store" in line
    assert sorted(path.name for path in store.rglob("*")) == before


def test_a_snapshot_and_a_new_store_of_a_newer_format_are_refused():
    state = ControlState(format_version=FORMAT_VERSION + 1)
    with pytest.raises(NewerFormat):
        ControlStateKind().decode(state.encode())
    with pytest.raises(NewerFormat):
        ControlState().apply(ClusterCreated("c", 1, FORMAT_VERSION + 1))
