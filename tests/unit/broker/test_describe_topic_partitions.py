"""DescribeTopicPartitions: all of it, in order, page by page."""

import pytest
from tests.unit.broker.administered import (
    BROKER_ID,
    GatedStore,
    ask,
    create,
    names,
    on_gated_store,
    started,
)

from holdfast.broker.broker import Broker
from holdfast.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicRequest,
    TopicPartitionsCursor,
)


async def page(
    broker: Broker,
    *topics: str,
    limit: int = 2000,
    cursor: tuple[str, int] | None = None,
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicRequest(name=name) for name in topics],
        response_partition_limit=limit,
        cursor=TopicPartitionsCursor(topic_name=cursor[0], partition_index=cursor[1])
        if cursor
        else None,
    )
    return await ask(broker, request, 0)


def shown(response: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [(t.name, [p.partition_index for p in t.partitions]) for t in response.topics]


@on_gated_store
async def test_all_topics_are_shown_in_the_order_of_their_names(store: GatedStore):
    broker = await started(store)
    for name, partitions in (("b", 1), ("c", 3), ("a", 2)):
        await create(broker, name, partitions)
    response = await page(broker)
    assert shown(response) == [("a", [0, 1]), ("b", [0]), ("c", [0, 1, 2])]
    assert response.next_cursor is None
    for topic in response.topics:
        assert topic.topic_id == broker.state.names[topic.name or ""]
        for partition in topic.partitions:
            assert (partition.leader_id, partition.leader_epoch) == (BROKER_ID, 0)
            assert partition.replica_nodes == partition.isr_nodes == [BROKER_ID]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 100])
@on_gated_store
async def test_the_pages_together_are_everything_once(store: GatedStore, limit: int):
    broker = await started(store)
    for name, partitions in (("a", 2), ("b", 1), ("c", 3)):
        await create(broker, name, partitions)
    found: list[tuple[str | None, int]] = []
    cursor: tuple[str, int] | None = None
    for _ in range(10):
        response = await page(broker, limit=limit, cursor=cursor)
        entries = [(name, i) for name, indexes in shown(response) for i in indexes]
        assert 0 < len(entries) <= limit
        found += entries
        if response.next_cursor is None:
            break
        cursor = (response.next_cursor.topic_name, response.next_cursor.partition_index)
    assert found == [("a", 0), ("a", 1), ("b", 0), ("c", 0), ("c", 1), ("c", 2)]


@on_gated_store
async def test_a_page_has_at_least_one_partition_whatever_limit_is_asked_for(store: GatedStore):
    broker = await started(store)
    await create(broker, "a", 2)
    assert shown(await page(broker, limit=0)) == [("a", [0])]
    assert shown(await page(broker, limit=-5)) == [("a", [0])]


@on_gated_store
async def test_named_topics_are_shown_once_and_missing_ones_are_unknown(store: GatedStore):
    broker = await started(store)
    await create(broker, "a")
    await create(broker, "b")
    response = await page(broker, "z", "b", "b", "bad name")
    found = dict(zip([t.name for t in response.topics], names(response.topics), strict=True))
    assert found == {
        "b": "NONE",
        "bad name": "INVALID_TOPIC_EXCEPTION",
        "z": "UNKNOWN_TOPIC_OR_PARTITION",
    }
    assert "z" not in broker.state.names


@on_gated_store
async def test_a_cursor_at_a_topic_that_was_deleted_goes_on_with_the_next(store: GatedStore):
    broker = await started(store)
    await create(broker, "a")
    await create(broker, "c", 2)
    assert shown(await page(broker, cursor=("b", 1))) == [("c", [0, 1])]


@pytest.mark.parametrize("cursor", [("a", -1), ("b", 0), ("z", 0)])
@on_gated_store
async def test_a_cursor_that_no_page_of_these_topics_had_is_refused(
    store: GatedStore, cursor: tuple[str, int]
):
    broker = await started(store)
    await create(broker, "a")
    await create(broker, "c")
    response = await page(broker, "a", "c", cursor=cursor)
    assert names(response.topics) == ["INVALID_REQUEST"] * 2
    assert all(topic.partitions == [] for topic in response.topics)
