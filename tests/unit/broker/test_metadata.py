"""Metadata: what can be used, who leads it, and nothing that is not durable."""

from uuid import UUID

from tests.support.async_tests import simulated
from tests.support.brokers import Cluster, lane_of, topic

from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.dispatch import answer
from holdfast.cluster.facts import TopicCreated
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)


async def metadata(
    broker: Broker, *names: str | UUID, create: bool = False, everything: bool = False
) -> MetadataResponse:
    wanted = [
        MetadataRequestTopic(topic_id=name, name=None)
        if isinstance(name, UUID)
        else MetadataRequestTopic(name=name)
        for name in names
    ]
    request = MetadataRequest(
        topics=None if everything else wanted, allow_auto_topic_creation=create
    )
    return await answer(broker, request, RequestContext(api_version=12))


@simulated
async def test_the_one_broker_leads_every_partition(world: Cluster):
    broker = await world.broker(3)
    topic_id = await topic(broker, partitions=2)
    for response in (
        await metadata(broker, "t"),
        await metadata(broker, topic_id),
        await metadata(broker, everything=True),
    ):
        (found,) = response.topics
        assert (found.error_code, found.name, found.topic_id) == (0, "t", topic_id)
        assert [p.leader_id for p in found.partitions] == [3, 3]
        assert [p.isr_nodes for p in found.partitions] == [[3], [3]]
        assert [(b.node_id, b.host) for b in response.brokers] == [(3, "broker-3")]
        assert response.cluster_id == broker.state.cluster_id


@simulated
async def test_what_is_not_there_is_refused_by_name_and_by_id(world: Cluster):
    broker = await world.broker()
    (by_name,) = (await metadata(broker, "nope")).topics
    assert by_name.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (by_id,) = (await metadata(broker, UUID(int=9))).topics
    assert by_id.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    (illegal,) = (await metadata(broker, "../x", create=True)).topics
    assert illegal.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert broker.state.topics == {}


@simulated
async def test_a_topic_that_is_not_durable_yet_is_not_shown(world: Cluster):
    broker = await world.broker()
    broker.control.add(TopicCreated(UUID(int=4), "soon", [1], {}))
    (found,) = (await metadata(broker, "soon")).topics
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await metadata(broker, everything=True)).topics == []
    await broker.flush_control()
    (found,) = (await metadata(broker, "soon")).topics
    assert found.error_code == 0


@simulated
async def test_asking_for_a_missing_topic_creates_it_where_that_is_allowed(world: Cluster):
    broker = await world.broker(num_partitions=3)
    (found,) = (await metadata(broker, "made", create=True)).topics
    assert (found.error_code, len(found.partitions)) == (0, 3)
    strict = await world.broker(2, auto_create_topics_enable=False)
    (refused,) = (await metadata(strict, "other", create=True)).topics
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@simulated
async def test_a_partition_whose_lane_was_lost_has_no_leader(world: Cluster):
    broker = await world.broker()
    await topic(broker)
    await lane_of(broker).close(release=True)
    (found,) = (await metadata(broker, "t")).topics
    (partition,) = found.partitions
    assert partition.leader_id == -1
    assert partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE
