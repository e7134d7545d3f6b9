"""After a crash: the disk is here, or the partition waits for it, or goes on without it."""

import asyncio
import logging
from typing import Any

import pytest
from simulation.faults.memory_disk import MemoryDisk
from tests.support.async_tests import simulated
from tests.support.brokers import (
    Ask,
    Cluster,
    fetch,
    fetch_all,
    lane_of,
    list_offset,
    log_of,
    pass_time,
    produce,
    simulate,
    values_in,
)
from tests.support.stores import Hold
from tests.support.transactional import TransactionalProducer
from tests.unit.broker.spooled import (
    LANE_OBJECTS,
    configure,
    crashed,
    ready,
    serving,
    values,
)

from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.dispatch import answer
from holdfast.log.data_lane import RESERVED_OFFSETS
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from holdfast.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersTopic,
)
from holdfast.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from holdfast.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


@simulated
async def test_after_a_crash_the_disk_has_what_was_acknowledged(world: Cluster):
    disk, _ = await crashed(world)
    again, _ = await serving(world, 2, disk)
    assert await values(again) == [b"0", b"1", b"2"]
    assert (await produce(again, [b"3"])).base_offset == 3
    assert again.disk_acks.totals["record_batches"] == 2


@simulated
async def test_without_the_disk_the_partition_is_offline_and_all_else_is_served(world: Cluster):
    disk, _ = await crashed(world)
    other, _ = await serving(world, 2)
    errors = await errors_of_all_apis(other)
    assert errors.pop("metadata") == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert errors.pop("produce") == ErrorCode.LEADER_NOT_AVAILABLE
    assert set(errors.values()) == {ErrorCode.NOT_LEADER_OR_FOLLOWER}, errors
    assert values_in(await fetch(other, 0, name="plain")) == [b"p"]
    assert (await produce(other, [b"q"], name="plain")).base_offset == 1
    await pass_time(60)
    assert (await produce(other)).error_code == ErrorCode.LEADER_NOT_AVAILABLE
    await other.stop(release=True)
    back, _ = await serving(world, 3, disk)
    assert await values(back) == [b"0", b"1", b"2"]


async def errors_of_all_apis(broker: Broker) -> dict[str, Any]:
    async def ask(request: Any, version: int) -> Any:
        return await answer(broker, request, RequestContext(api_version=version))

    metadata = await ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)
    shown = metadata.topics[0].partitions[0]
    deleted = await ask(
        DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=1)]
                )
            ],
            timeout_ms=1_000,
        ),
        2,
    )
    epochs = await ask(
        OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderTopic(
                    topic="t", partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)]
                )
            ]
        ),
        4,
    )
    producers = await ask(
        DescribeProducersRequest(topics=[DescribeProducersTopic(name="t", partition_indexes=[0])]),
        0,
    )
    fetched = await fetch_all(broker, [Ask(offset=0)])
    return {
        "metadata": (shown.error_code, shown.leader_id),
        "produce": (await produce(broker)).error_code,
        "fetch": fetched.responses[0].partitions[0].error_code,
        "list offsets": (await list_offset(broker)).error_code,
        "delete records": deleted.topics[0].partitions[0].error_code,
        "offset for leader epoch": epochs.topics[0].partitions[0].error_code,
        "describe producers": producers.topics[0].partitions[0].error_code,
    }


@pytest.mark.parametrize("when", ["before", "while it waits"])
def test_with_unclean_elections_the_partition_goes_on_behind_a_hole_that_is_named(
    when: str, caplog: pytest.LogCaptureFixture
):
    async def test(world: Cluster) -> None:
        broker, _, topic_id = await ready(world)
        unclean = {"unclean_leader_election_enable": "true", "holdfast_ack": "disk"}
        await produce(broker, [b"1"])
        if when == "before":
            await configure(broker, topic_id, **unclean)
        other, _ = await serving(world, 2)
        if when == "while it waits":
            assert (await produce(other)).error_code == ErrorCode.LEADER_NOT_AVAILABLE
            await configure(other, topic_id, **unclean)
            await pass_time(10)
        assert (await list_offset(other)).offset == 1 + RESERVED_OFFSETS
        assert (await produce(other, [b"after"])).base_offset == 1 + RESERVED_OFFSETS
        part = await fetch(other, 0)
        assert values_in(part) == [b"0", b"after"]
        (missing,) = log_of(other).missing
        assert (missing.base_offset, missing.last_offset) == (1, RESERVED_OFFSETS)
        assert other.disk_acks.totals["missing_offsets"] == RESERVED_OFFSETS
        for offset in (1, 2, 500_000):
            assert values_in(await fetch(other, offset)) == [b"after"]

    with caplog.at_level(logging.WARNING, "holdfast"):
        simulate(test)
    assert f"offsets=1..{RESERVED_OFFSETS}" in caplog.text


@simulated
async def test_a_disk_that_comes_back_after_the_partition_went_on_is_kept(world: Cluster):
    broker, disk, topic_id = await ready(world)
    await produce(broker, [b"1"])
    unclean = {"unclean_leader_election_enable": "true", "holdfast_ack": "disk"}
    await configure(broker, topic_id, **unclean)
    before = {name: bytes(data) for name, data in disk.files.items()}
    other, _ = await serving(world, 2)
    await produce(other, [b"after"])
    await other.stop(release=True)
    back, _ = await serving(world, 3, disk)
    assert values_in(await fetch(back, 0)) == [b"0", b"after"]
    assert before.items() <= {name: bytes(data) for name, data in disk.files.items()}.items()


@simulated
async def test_what_a_stale_owner_writes_to_the_same_disk_is_neither_acked_nor_taken_in(
    world: Cluster,
):
    broker, disk, _ = await ready(world)
    disk._delay_seconds = (20.0, 20.0)
    sending = asyncio.ensure_future(produce(broker, [b"late"]))
    await pass_time(0.1)
    disk._delay_seconds = (0.001, 0.001)
    second, _ = await serving(world, 2, disk)
    assert (await produce(second, [b"1"])).base_offset == 1
    assert (await sending).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await pass_time(30)
    third, _ = await serving(world, 3, disk)
    assert await values(third) == [b"0", b"1"]


@simulated
async def test_a_ceiling_that_is_about_to_be_lowered_does_not_count(world: Cluster):
    broker, _, topic_id = await ready(world)
    await produce(broker, [b"1"])
    await configure(broker, topic_id, holdfast_ack="store")
    hold = Hold("create", LANE_OBJECTS)
    world.store.before.append(hold)
    sends = [asyncio.ensure_future(produce(broker, [b"2"]))]
    await hold.reached.wait()
    await configure(broker, topic_id, holdfast_ack="disk")
    sends.append(asyncio.ensure_future(produce(broker, [b"3"])))
    after_it = Hold("create", LANE_OBJECTS)
    world.store.before.append(after_it)
    await pass_time(0.1)
    hold.go.set()
    await pass_time(1)
    assert [sent.done() for sent in sends] == [True, False]
    after_it.go.set()
    assert [done.base_offset for done in await asyncio.gather(*sends)] == [2, 3]


@simulated
async def test_a_spool_that_is_damaged_in_the_middle_is_kept_and_its_partition_waits(
    world: Cluster,
):
    broker, disk, _ = await ready(world)
    sizes: list[int] = []
    for number in range(1, 4):
        await produce(broker, [b"%d" % number])
        sizes.append(sum(len(data) for data in disk.files.values()))
    ((name, data),) = disk.files.items()
    data[sizes[0] + 5] ^= 1
    second, _ = await serving(world, 2, disk)
    assert (await produce(second)).error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert disk.files[name] is data
    await second.stop(release=True)
    data[sizes[0] + 5] ^= 1
    third, _ = await serving(world, 3, disk)
    assert await values(third) == [b"0", b"1", b"2", b"3"]


def test_a_file_that_is_gone_when_it_is_read_leaves_the_partition_waiting():
    """Seed 930: another process of the machine deletes it between the listing and the read."""

    class Vanishing(MemoryDisk):
        async def read(self, name: str) -> bytes:
            self.hidden = {name: self.files.pop(name)}
            return await super().read(name)

    async def test(world: Cluster) -> None:
        disk, _ = await crashed(world)
        vanishing = Vanishing(environment=world.environment())
        vanishing.files = disk.files
        second, _ = await serving(world, 2, vanishing)
        assert (await produce(second)).error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert (await produce(second, name="plain")).error_code == 0
        await second.stop(release=True)
        disk.files.update(vanishing.hidden)
        third, _ = await serving(world, 3, disk)
        assert await values(third) == [b"0", b"1", b"2"]

    simulate(test)


def test_the_spool_of_another_store_is_neither_believed_nor_deleted():
    async def elsewhere(world: Cluster) -> dict[str, bytes]:
        disk, _ = await crashed(world)
        return {name: bytes(data) for name, data in disk.files.items()}

    left = simulate(elsewhere)

    async def test(world: Cluster) -> None:
        for _ in range(100):
            world.environment()  # so that no chance is the other store's
        await ready(world)
        disk = MemoryDisk(environment=world.environment())
        disk.files = {name: bytearray(data) for name, data in left.items()}
        second, _ = await serving(world, 2, disk)
        assert lane_of(second).awaited
        assert left.items() <= {name: bytes(data) for name, data in disk.files.items()}.items()

    simulate(test)


@pytest.mark.parametrize("committed", [True, False])
@simulated
async def test_a_transaction_ends_on_a_partition_behind_what_its_disk_holds(
    world: Cluster, committed: bool
):
    broker, disk, _ = await ready(world)
    producer = TransactionalProducer(broker)
    assert await producer.init() == 0
    assert (await producer.send(0, b"in the transaction")).base_offset == 1
    assert (await produce(broker, [b"2"])).base_offset == 2
    other, _ = await serving(world, 2)
    producer.broker = other
    assert await producer.end(committed=committed) == 0
    await pass_time(5)
    assert log_of(other).log_end_offset == 2
    await other.stop(release=True)
    back, _ = await serving(world, 3, disk)
    await pass_time(5)
    log = log_of(back)
    assert (log.log_end_offset, log.last_stable_offset) == (4, 4)
    seen = values_in(await fetch(back, 0, isolation_level=1))
    assert b"2" in seen and len(log.transactions.aborted) == (not committed)
