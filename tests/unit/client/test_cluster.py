"""Bootstrap, leaders that move, patience, and errors that name what was tried."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.support.async_tests import in_event_loop
from tests.unit.client.scripted_broker import (
    TOPIC,
    Answer,
    HangUp,
    Script,
    ScriptedBroker,
)

from holdfast.client import admin
from holdfast.client.cluster import Cluster
from holdfast.client.refusals import BrokerUnavailable, RefusedForNow, RequestRefused
from holdfast.environment import SystemEnvironment
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.message import Message
from holdfast.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from holdfast.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from holdfast.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from holdfast.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


def cluster_of(bootstrap: str, *, deadline_ms: int = 20_000) -> Cluster:
    return Cluster(
        bootstrap,
        environment=SystemEnvironment(),
        request_timeout_ms=10_000,
        deadline_ms=deadline_ms,
    )


def run(
    script: Script, body: Callable[[Cluster], Awaitable[None]], *, deadline_ms: int = 20_000
) -> ScriptedBroker:
    async def main() -> ScriptedBroker:
        async with (
            ScriptedBroker(script) as broker,
            cluster_of(broker.bootstrap, deadline_ms=deadline_ms) as cluster,
        ):
            await asyncio.wait_for(body(cluster), 30)
            return broker

    return asyncio.run(main())


def listed(offset: int, code: ErrorCode = ErrorCode.NONE) -> ListOffsetsResponse:
    row = ListOffsetsPartitionResponse(partition_index=0, offset=offset, error_code=code)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[row])])


def answers(key: ApiKey, *rows: Answer) -> Script:
    """Each of these in turn to requests of one API; the usual answer to the others."""
    left = list(rows)
    return lambda asked, _request: left.pop(0) if asked is key else None


@in_event_loop
async def test_the_first_bootstrap_address_that_answers_is_enough():
    async with ScriptedBroker() as gone:
        dead = gone.bootstrap
    async with ScriptedBroker() as broker, cluster_of(f"{dead},{broker.bootstrap}") as cluster:
        await cluster.refresh([])
        assert cluster.brokers[7].port == broker.port


@in_event_loop
async def test_all_addresses_that_were_tried_are_named_where_none_answers():
    async with ScriptedBroker() as one, ScriptedBroker() as other:
        addresses = [one.bootstrap, other.bootstrap]
    async with cluster_of(",".join(addresses), deadline_ms=0) as cluster:
        with pytest.raises(BrokerUnavailable) as error:
            await admin.list_offset(cluster, TOPIC, 0)
    assert all(address in str(error.value) for address in addresses)
    assert "gave up after 1 tries" in str(error.value)


@pytest.mark.parametrize(
    "trouble",
    [
        listed(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        listed(-1, ErrorCode.FENCED_LEADER_EPOCH),
        listed(-1, ErrorCode.OFFSET_NOT_AVAILABLE),
        ListOffsetsResponse(),
        HangUp(),
    ],
    ids=repr,
)
def test_trouble_that_may_pass_is_asked_again_with_new_metadata(trouble: Answer):
    async def body(cluster: Cluster) -> None:
        assert (await admin.list_offset(cluster, TOPIC, 0)).offset == 12

    broker = run(answers(ApiKey.LIST_OFFSETS, trouble, trouble, listed(12)), body)
    assert broker.times_asked(ApiKey.LIST_OFFSETS) == 3
    assert broker.times_asked(ApiKey.METADATA) == 3


@in_event_loop
async def test_the_newest_leader_epoch_is_sent_after_a_refresh():
    seen: list[int] = []

    def script(key: ApiKey, request: Message) -> Answer | None:
        if key is ApiKey.METADATA:
            broker.leader_epoch += 1
        if not isinstance(request, ListOffsetsRequest):
            return None
        seen.append(request.topics[0].partitions[0].current_leader_epoch)
        return listed(12) if len(seen) == 2 else listed(-1, ErrorCode.FENCED_LEADER_EPOCH)

    broker = ScriptedBroker(script)
    async with broker, cluster_of(broker.bootstrap) as cluster:
        await admin.list_offset(cluster, TOPIC, 0)
    assert seen == [2, 3]


def test_what_is_refused_for_good_is_asked_once():
    async def body(cluster: Cluster) -> None:
        with pytest.raises(RequestRefused, match=f"{TOPIC}-0.*TOPIC_AUTHORIZATION_FAILED"):
            await admin.list_offset(cluster, TOPIC, 0)

    refusal = listed(-1, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert run(answers(ApiKey.LIST_OFFSETS, refusal), body).times_asked(ApiKey.LIST_OFFSETS) == 1


def test_a_code_from_the_future_is_refused_as_unknown():
    async def body(cluster: Cluster) -> None:
        with pytest.raises(RequestRefused, match="9999") as refused:
            await admin.list_offset(cluster, TOPIC, 0)
        assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR

    row = ListOffsetsPartitionResponse(partition_index=0, error_code=9999)
    response = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[row])])
    run(answers(ApiKey.LIST_OFFSETS, response), body)


def test_a_partition_that_is_not_there_is_named_with_those_that_are():
    async def body(cluster: Cluster) -> None:
        with pytest.raises(RefusedForNow, match=r"has partitions \[0\], not 5") as refused:
            await admin.list_offset(cluster, TOPIC, 5)
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(lambda _key, _request: None, body, deadline_ms=0)


def metadata_of(port: int, node_id: int) -> MetadataResponse:
    partition = MetadataResponsePartition(leader_id=node_id, leader_epoch=1)
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node_id, host="127.0.0.1", port=port)],
        controller_id=node_id,
        topics=[MetadataResponseTopic(name=TOPIC, partitions=[partition])],
    )


def test_a_leader_that_moved_to_another_broker_is_followed():
    async def main() -> None:
        async with ScriptedBroker(answers(ApiKey.LIST_OFFSETS, listed(12))) as new:

            def script(key: ApiKey, _request: Message) -> Answer | None:
                if key is ApiKey.LIST_OFFSETS:
                    return listed(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                if key is ApiKey.METADATA and ApiKey.LIST_OFFSETS in old.asked:
                    return metadata_of(new.port, 8)
                return None

            old = ScriptedBroker(script)
            async with old, cluster_of(old.bootstrap) as cluster:
                assert (await admin.list_offset(cluster, TOPIC, 0)).offset == 12
            assert new.times_asked(ApiKey.LIST_OFFSETS) == 1

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_create_whose_answer_was_lost_finds_its_own_topic_and_is_content():
    row = CreatableTopicResult(name="new", error_code=ErrorCode.TOPIC_ALREADY_EXISTS)

    async def body(cluster: Cluster) -> None:
        await admin.create_topics(cluster, [admin.NewTopic("new", 1, 1)])

    answer = CreateTopicsResponse(topics=[row])
    run(answers(ApiKey.CREATE_TOPICS, HangUp(), answer), body)
    with pytest.raises(RequestRefused, match="TOPIC_ALREADY_EXISTS"):
        run(answers(ApiKey.CREATE_TOPICS, answer), body)


def test_a_delete_whose_answer_was_lost_finds_the_topic_gone_and_is_content():
    row = DeletableTopicResult(name="old", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def body(cluster: Cluster) -> None:
        await admin.delete_topics(cluster, ["old"])

    answer = DeleteTopicsResponse(responses=[row])
    run(answers(ApiKey.DELETE_TOPICS, HangUp(), answer), body)
    with pytest.raises(RequestRefused, match="UNKNOWN_TOPIC_OR_PARTITION"):
        run(answers(ApiKey.DELETE_TOPICS, answer), body)


def test_a_create_that_was_surely_not_done_does_not_take_another_topic_for_its_own():
    def answer(code: ErrorCode) -> Answer:
        return CreateTopicsResponse(topics=[CreatableTopicResult(name="new", error_code=code)])

    async def body(cluster: Cluster) -> None:
        with pytest.raises(RequestRefused, match="TOPIC_ALREADY_EXISTS"):
            await admin.create_topics(cluster, [admin.NewTopic("new", 1, 1)])

    script = answers(
        ApiKey.CREATE_TOPICS,
        answer(ErrorCode.NOT_CONTROLLER),
        answer(ErrorCode.TOPIC_ALREADY_EXISTS),
    )
    assert run(script, body).times_asked(ApiKey.METADATA) == 2
