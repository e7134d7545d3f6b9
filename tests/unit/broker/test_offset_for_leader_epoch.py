"""OffsetForLeaderEpoch: where each leader epoch ended, told by the newest leader only."""

import pytest
from tests.unit.broker.administered import (
    GatedStore,
    ask,
    create,
    names,
    on_gated_store,
    produce,
    started,
)

from holdfast.broker.broker import Broker
from holdfast.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


async def end_of(
    broker: Broker,
    leader_epoch: int,
    *,
    name: str = "a",
    partition: int = 0,
    current: int = -1,
    version: int = 4,
) -> EpochEndOffset:
    asked = OffsetForLeaderPartition(
        partition=partition, current_leader_epoch=current, leader_epoch=leader_epoch
    )
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic=name, partitions=[asked])]
    )
    response = await ask(broker, request, version)
    return response.topics[0].partitions[0]


async def ends(broker: Broker, *leader_epochs: int) -> list[tuple[int, int]]:
    found = [await end_of(broker, epoch) for epoch in leader_epochs]
    assert set(names(found)) == {"NONE"}
    return [(end.leader_epoch, end.end_offset) for end in found]


@pytest.mark.parametrize("version", range(2, 5))
@on_gated_store
async def test_the_current_epoch_ends_at_the_high_watermark(store: GatedStore, version: int):
    broker = await started(store)
    await create(broker, "a")
    await produce(broker, "a", 3)
    end = await end_of(broker, 0, current=0, version=version)
    assert (names([end]), end.leader_epoch, end.end_offset) == (["NONE"], 0, 3)


@on_gated_store
async def test_each_epoch_ends_where_the_next_one_with_records_begins(store: GatedStore):
    broker = await started(store)
    await create(broker, "a")
    await produce(broker, "a", 3)
    await started(store)
    broker = await started(store)
    await produce(broker, "a", 4)
    broker = await started(store)
    assert await ends(broker, 0, 1, 2, 3) == [(0, 3), (0, 3), (2, 7), (3, 7)]


@on_gated_store
async def test_an_epoch_that_never_was_has_no_end(store: GatedStore):
    broker = await started(store)
    await create(broker, "a")
    await produce(broker, "a", 3)
    assert await ends(broker, 1, 99, -1) == [(-1, -1)] * 3


@on_gated_store
async def test_an_epoch_before_all_records_ends_where_they_begin(store: GatedStore):
    broker = await started(store)
    await create(broker, "a")
    broker = await started(store)
    assert await ends(broker, 0, 1) == [(0, 0), (1, 0)]
    await produce(broker, "a", 3)
    assert await ends(broker, 0, 1) == [(0, 0), (1, 3)]


@pytest.mark.parametrize(
    ("current", "error"),
    [(-1, "NONE"), (0, "FENCED_LEADER_EPOCH"), (1, "NONE"), (2, "UNKNOWN_LEADER_EPOCH")],
)
@on_gated_store
async def test_a_client_with_another_idea_of_the_leader_epoch_is_told(
    store: GatedStore, current: int, error: str
):
    broker = await started(store)
    await create(broker, "a")
    broker = await started(store)
    end = await end_of(broker, 1, current=current)
    assert names([end]) == [error]
    assert (end.end_offset == -1) == (error != "NONE")


@on_gated_store
async def test_what_is_not_there_is_unknown(store: GatedStore):
    broker = await started(store)
    await create(broker, "a")
    found = [
        await end_of(broker, 0, name="nobody"),
        await end_of(broker, 0, partition=1),
        await end_of(broker, 0, partition=-1),
    ]
    assert names(found) == ["UNKNOWN_TOPIC_OR_PARTITION"] * 3


@on_gated_store
async def test_a_broker_that_lost_its_lanes_tells_no_offset(store: GatedStore):
    first = await started(store)
    await create(first, "a")
    await produce(first, "a", 3)
    await started(store)
    assert names([await end_of(first, 0)]) == ["NOT_LEADER_OR_FOLLOWER"]
