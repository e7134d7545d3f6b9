"""A follower on a directory while a real broker produces, rewrites, deletes records and topics."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.support.warm_broker import ChaosBroker, eager_broker_on

from holdfast.client import admin
from holdfast.client.cluster import Cluster, PartitionLeader
from holdfast.client.connection import BrokerConnection
from holdfast.client.produce import IdempotentProducer
from holdfast.client.refusals import raise_for
from holdfast.environment import SystemEnvironment
from holdfast.errors import ObjectNotFound
from holdfast.follow.follower import StoreFollower
from holdfast.identifiers import PartitionId
from holdfast.lane.entry import HEADER_BYTES, parse_header
from holdfast.log.stored_batches import Stretch
from holdfast.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from holdfast.records.record import Record, decode
from holdfast.store.interface import Store
from holdfast.store.read_only import open_read_only

PARTITIONS = 2
RECORDS_PER_BATCH = 20
ROUNDS_MIN = 60
LAZY_EVERY = 15
"""So many rounds one follower sleeps: long enough for the lane to be rewritten under it."""
SECONDS_MAX = 90.0


@pytest.fixture
def eager_broker(tmp_path: Path) -> Iterator[ChaosBroker]:
    with eager_broker_on(tmp_path) as broker:
        yield broker


class Written(NamedTuple):
    """The values of one partition by offset, and up to where they are known."""

    values: dict[int, bytes]
    topic: str
    partition: int


async def write(producer: IdempotentProducer, written: Written, stopping: asyncio.Event) -> None:
    count = 0
    while not stopping.is_set():
        values = [b"%d-%d-" % (count, i) + b"x" * 200 for i in range(RECORDS_PER_BATCH)]
        records = [Record(0, 1_000 + count, None, value) for value in values]
        produced = await producer.send(written.topic, written.partition, records)
        written.values.update({produced.base_offset + i: value for i, value in enumerate(values)})
        count += 1


async def delete_records(cluster: Cluster, topic: str, partition: int, before: int) -> None:
    async def ask(connection: BrokerConnection, leader: PartitionLeader) -> None:
        wanted = DeleteRecordsPartition(partition_index=partition, offset=before)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=10_000
        )
        response = await connection.request(request, DeleteRecordsResponse)
        raise_for(response.topics[0].partitions[0].error_code, "delete records")

    await cluster.ask_leader(topic, partition, ask)


async def bytes_of(store: Store, stretch: Stretch) -> bytes:
    start = stretch.position
    if stretch.is_in_payload:
        head = await store.read(stretch.key, start=0, length=HEADER_BYTES)
        start += parse_header(head, key=stretch.key).payload_start
    return await store.read(stretch.key, start=start, length=stretch.size_bytes)


async def read(
    store: Store, follower: StoreFollower, partition: PartitionId, start: int, end: int
) -> list[Record]:
    """The records, looked for anew where they were moved meanwhile."""
    while True:
        placed = await follower.place(partition, start, end)
        assert placed is not None
        try:
            several = [await bytes_of(store, stretch) for stretch in placed.stretches]
        except ObjectNotFound:
            await follower.refresh()
            continue
        return [r for data in several for r in decode(data) if start <= r.offset < end]


async def compare(cluster: Cluster, store: Store, follower: StoreFollower, written: Written) -> int:
    """One look at one partition; returns the latest offset that the follower says."""
    before = await admin.list_offset(cluster, written.topic, written.partition)
    await follower.refresh()
    topic = follower.topics()[written.topic]
    id_ = PartitionId(topic.topic_id, written.partition)
    bounds = follower.bounds(id_)
    assert bounds is not None
    assert bounds.latest >= before.offset
    start = max(bounds.earliest, before.offset - 100)
    records = await read(store, follower, id_, start, before.offset)
    assert [r.offset for r in records] == list(range(start, before.offset))
    known = [(r.offset, r.value) for r in records if r.offset in written.values]
    assert known == [(offset, written.values[offset]) for offset, _ in known]
    if written.partition == 0 and before.offset - bounds.earliest > 500:
        await delete_records(cluster, written.topic, 0, before.offset - 300)
        await follower.refresh()
        after = follower.bounds(id_)
        assert after is not None and after.earliest == before.offset - 300
    return bounds.latest


async def recreate(cluster: Cluster, follower: StoreFollower, producer: IdempotentProducer) -> None:
    """A topic that comes and goes: each time with another id, and empty."""
    await admin.create_topics(cluster, [admin.NewTopic("fleeting", 1)])
    await admin.describe_topic(cluster, "fleeting")
    await follower.refresh()
    topic = follower.topics()["fleeting"]
    assert follower.bounds(PartitionId(topic.topic_id, 0)) == (0, 0)
    await producer.send("fleeting", 0, [Record(0, 1, None, b"gone soon")] * 3)
    await follower.refresh()
    assert follower.bounds(PartitionId(topic.topic_id, 0)) == (0, 3)
    await admin.delete_topics(cluster, ["fleeting"])
    await follower.refresh()
    assert "fleeting" not in follower.topics()
    assert follower.bounds(PartitionId(topic.topic_id, 0)) is None


def test_it_says_what_the_broker_says_through_rewriting_and_deletion(
    eager_broker: ChaosBroker, tmp_path: Path
):
    async def body() -> None:
        environment = SystemEnvironment()
        store = open_read_only(str(tmp_path / "store"), environment=environment)
        follower = StoreFollower(store, environment=environment)
        lazy = StoreFollower(store, environment=environment)
        await lazy.refresh()
        opened = lazy.recoveries
        bootstrap = f"127.0.0.1:{eager_broker.port}"
        async with Cluster(bootstrap, environment=environment) as cluster:
            await admin.create_topics(cluster, [admin.NewTopic("a", PARTITIONS)])
            await admin.describe_topic(cluster, "a")
            producer = IdempotentProducer(cluster)
            several = [Written({}, "a", partition) for partition in range(PARTITIONS)]
            stopping = asyncio.Event()
            writers = [asyncio.create_task(write(producer, w, stopping)) for w in several]
            latest = dict.fromkeys(range(PARTITIONS), 0)
            number = 0
            while number < ROUNDS_MIN or lazy.recoveries == opened:
                for written in several:
                    found = await compare(cluster, store, follower, written)
                    assert found >= latest[written.partition]
                    latest[written.partition] = found
                    if number % LAZY_EVERY == LAZY_EVERY - 1:
                        await compare(cluster, store, lazy, written)
                if number % 10 == 0:
                    await recreate(cluster, follower, producer)
                number += 1
            stopping.set()
            await asyncio.gather(*writers)
            await follower.refresh()
            topic_id = follower.topics()["a"].topic_id
            for written in several:
                bounds = follower.bounds(PartitionId(topic_id, written.partition))
                ends = [
                    (await admin.list_offset(cluster, "a", written.partition, at=at)).offset
                    for at in (admin.EARLIEST, admin.LATEST)
                ]
                assert bounds == tuple(ends)
                newest = await admin.list_offset(
                    cluster, "a", written.partition, at=admin.MAX_TIMESTAMP
                )
                ours = await follower.offset_of_max_timestamp(
                    PartitionId(topic_id, written.partition)
                )
                assert ours == (newest.offset, newest.timestamp)
            assert follower.entries_followed > 50
        await store.close()

    asyncio.run(asyncio.wait_for(body(), SECONDS_MAX))
