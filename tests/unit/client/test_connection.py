"""One connection: what it agrees on, how it pairs answers, and how it ends."""

import asyncio
import struct

import pytest
from tests.support.async_tests import in_event_loop
from tests.unit.client.scripted_broker import (
    Answer,
    HangUp,
    Script,
    ScriptedBroker,
    Silence,
    all_versions,
)

from holdfast.client.address import Address
from holdfast.client.connection import BrokerConnection
from holdfast.client.refusals import BrokerUnavailable, UnsupportedByBroker
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.message import Message
from holdfast.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from holdfast.protocol.messages.fetch import FetchRequest
from holdfast.protocol.messages.metadata import MetadataRequest, MetadataResponse


async def connect(broker: ScriptedBroker) -> BrokerConnection:
    return await BrokerConnection.open(Address("127.0.0.1", broker.port), timeout_ms=10_000)


async def metadata(
    connection: BrokerConnection, *, timeout_ms: int | None = None
) -> MetadataResponse:
    request = MetadataRequest(topics=None)
    return await connection.request(request, MetadataResponse, timeout_ms=timeout_ms)


def on_metadata(answer: Answer) -> Script:
    return lambda key, _request: answer if key is ApiKey.METADATA else None


@in_event_loop
async def test_the_newest_version_of_both_sides_is_used():
    def script(key: ApiKey, _request: Message) -> Answer | None:
        if key is not ApiKey.API_VERSIONS:
            return None
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=ApiKey.METADATA, min_version=0, max_version=8),
                ApiVersion(api_key=ApiKey.FETCH, min_version=99, max_version=120),
            ]
        )

    async with ScriptedBroker(script) as broker:
        connection = await connect(broker)
        await metadata(connection)
        assert broker.versions[-1] == (ApiKey.METADATA, 8)
        with pytest.raises(UnsupportedByBroker, match="99 to 120 of FETCH"):
            connection.version_for(FetchRequest)
        await connection.close()


@in_event_loop
async def test_a_broker_that_knows_only_an_older_apiversions_is_asked_again():
    def script(key: ApiKey, request: Message) -> Answer | None:
        if key is ApiKey.API_VERSIONS and broker.versions[-1][1] > 2:
            body = struct.pack(">ihi hhh", 0, ErrorCode.UNSUPPORTED_VERSION, 1, 18, 0, 2)
            return struct.pack(">i", len(body)) + body
        return None

    broker = ScriptedBroker(script)
    async with broker:
        connection = await connect(broker)
        assert [version for _, version in broker.versions] == [4, 2]
        await metadata(connection)
        await connection.close()


@in_event_loop
async def test_a_port_where_nobody_listens_is_named_with_a_remedy():
    async with ScriptedBroker() as broker:
        port = broker.port
    with pytest.raises(BrokerUnavailable, match=f"127.0.0.1:{port}.*is a broker running"):
        await BrokerConnection.open(Address("127.0.0.1", port))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (HangUp(), "closed it without an answer"),
        (Silence(), "did not answer MetadataRequest v13 within 50 ms"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is this the port of a Kafka broker"),
        (struct.pack(">i", 3) + b"abc", "a response of 3 bytes"),
        (struct.pack(">i", -1), "a response of 4294967295 bytes"),
        (struct.pack(">ii", 4, 999), "an answer to request 999, never asked"),
        (struct.pack(">ii", 4, 1), "cannot be read"),
        (struct.pack(">iib", 5, 1, 0), "cannot be read"),
        (struct.pack(">iib", 30, 1, 0) + b"\xff" * 25, "cannot be read"),
    ],
    ids=str,
)
@in_event_loop
async def test_a_bad_answer_ends_the_connection_with_a_reason(answer: Answer, reason: str):
    async with ScriptedBroker(on_metadata(answer)) as broker:
        connection = await connect(broker)
        timeout_ms = 50 if isinstance(answer, Silence) else None
        with pytest.raises(BrokerUnavailable, match=reason) as first:
            await metadata(connection, timeout_ms=timeout_ms)
        assert f"127.0.0.1:{broker.port}" in str(first.value)
        assert not connection.is_open
        with pytest.raises(BrokerUnavailable, match="is closed"):
            await metadata(connection)
        await connection.close()


@in_event_loop
async def test_a_hang_up_ends_every_request_under_way():
    held: list[Message] = []

    def script(key: ApiKey, request: Message) -> Answer | None:
        if key is not ApiKey.METADATA:
            return None
        held.append(request)
        return HangUp() if len(held) == 5 else Silence()

    async with ScriptedBroker(script) as broker:
        connection = await connect(broker)
        answers = await asyncio.gather(
            *(metadata(connection) for _ in range(5)), return_exceptions=True
        )
        assert [type(answer) for answer in answers] == [BrokerUnavailable] * 5
        await connection.close()


@in_event_loop
async def test_a_cancelled_request_does_not_harm_the_next():
    release: list[bool] = []

    def script(key: ApiKey, _request: Message) -> Answer | None:
        if key is ApiKey.METADATA and not release:
            release.append(True)
            return Silence()
        return None

    async with ScriptedBroker(script) as broker:
        connection = await connect(broker)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(metadata(connection), 0.05)
        assert (await metadata(connection)).controller_id == 7
        await connection.close()


@in_event_loop
async def test_answers_may_come_for_many_requests_at_once():
    async with ScriptedBroker(lambda key, _: all_versions() if key == 18 else None) as broker:
        connection = await connect(broker)
        answers = await asyncio.gather(*(metadata(connection) for _ in range(100)))
        assert {answer.controller_id for answer in answers} == {7}
        assert broker.times_asked(ApiKey.METADATA) == 100
        await connection.close()
