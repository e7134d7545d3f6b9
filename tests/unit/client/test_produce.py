"""What a producer says became of a write: landed, surely refused, or unknown."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence

import pytest
from tests.unit.client.scripted_broker import TOPIC, Answer, HangUp, ScriptedBroker

from holdfast.client.cluster import Cluster
from holdfast.client.produce import IdempotentProducer
from holdfast.client.refusals import OutcomeUnknown, RequestRefused
from holdfast.environment import SystemEnvironment
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.message import Message
from holdfast.protocol.messages.init_producer_id import InitProducerIdResponse
from holdfast.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from holdfast.records.batch import BatchHeader, parse_header
from holdfast.records.record import Record

RECORDS = [Record(0, 1_000, None, b"v"), Record(0, 1_000, None, b"w")]
OK = ErrorCode.NONE


class ProduceScript:
    """Answers each Produce with the next of these codes, and hangs up where there is None."""

    def __init__(self, codes: Sequence[ErrorCode | None]) -> None:
        self._codes: Iterator[ErrorCode | None] = iter(codes)
        self.batches: list[BatchHeader] = []
        self.producer_ids = 0

    def __call__(self, key: ApiKey, request: Message) -> Answer | None:
        if key is ApiKey.INIT_PRODUCER_ID:
            self.producer_ids += 1
            return InitProducerIdResponse(producer_id=self.producer_ids * 100, producer_epoch=0)
        if not isinstance(request, ProduceRequest):
            return None
        records = request.topic_data[0].partition_data[0].records
        assert records is not None
        self.batches.append(parse_header(records))
        code = next(self._codes)
        if code is None:
            return HangUp()
        row = PartitionProduceResponse(index=0, error_code=code, base_offset=40)
        return ProduceResponse(
            responses=[TopicProduceResponse(name=TOPIC, partition_responses=[row])]
        )

    def sent(self) -> list[tuple[int, int]]:
        return [(header.producer_id, header.base_sequence) for header in self.batches]


def run(
    script: ProduceScript,
    body: Callable[[IdempotentProducer], Awaitable[None]],
    *,
    deadline_ms: int = 20_000,
) -> ScriptedBroker:
    async def main() -> ScriptedBroker:
        async with (
            ScriptedBroker(script) as broker,
            Cluster(broker.bootstrap, environment=SystemEnvironment()) as cluster,
        ):
            await asyncio.wait_for(body(IdempotentProducer(cluster, deadline_ms=deadline_ms)), 30)
            return broker

    return asyncio.run(main())


def test_sequences_count_records_under_one_producer_id():
    script = ProduceScript([OK, OK, OK])

    async def body(producer: IdempotentProducer) -> None:
        for _ in range(3):
            produced = await producer.send(TOPIC, 0, RECORDS)
            assert (produced.base_offset, produced.tries) == (40, 1)

    run(script, body)
    assert script.sent() == [(100, 0), (100, 2), (100, 4)]


@pytest.mark.parametrize(
    "trouble",
    [
        [None],
        [None, None],
        [ErrorCode.NOT_LEADER_OR_FOLLOWER],
        [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.REQUEST_TIMED_OUT],
        [ErrorCode.KAFKA_STORAGE_ERROR],
    ],
    ids=str,
)
def test_a_retry_carries_the_same_sequence_until_the_batch_lands(
    trouble: list[ErrorCode | None],
):
    script = ProduceScript([*trouble, OK, OK])

    async def body(producer: IdempotentProducer) -> None:
        assert (await producer.send(TOPIC, 0, RECORDS)).tries == len(trouble) + 1
        await producer.send(TOPIC, 0, RECORDS)

    broker = run(script, body)
    assert script.sent() == [(100, 0)] * (len(trouble) + 1) + [(100, 2)]
    assert broker.times_asked(ApiKey.METADATA) == len(trouble) + 1


def test_a_duplicate_is_a_success_without_an_offset():
    script = ProduceScript([None, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, OK])

    async def body(producer: IdempotentProducer) -> None:
        assert (await producer.send(TOPIC, 0, RECORDS)).base_offset == -1
        await producer.send(TOPIC, 0, RECORDS)

    run(script, body)
    assert script.sent() == [(100, 0), (100, 0), (100, 2)]


def test_a_refused_batch_leaves_the_sequence_to_the_next():
    script = ProduceScript([OK, ErrorCode.INVALID_RECORD, OK])

    async def body(producer: IdempotentProducer) -> None:
        await producer.send(TOPIC, 0, RECORDS)
        with pytest.raises(RequestRefused) as refused:
            await producer.send(TOPIC, 0, RECORDS)
        assert refused.value.code is ErrorCode.INVALID_RECORD
        await producer.send(TOPIC, 0, RECORDS)

    run(script, body)
    assert script.sent() == [(100, 0), (100, 2), (100, 2)]


def test_a_lost_producer_gets_a_new_id():
    script = ProduceScript([OK, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, OK])

    async def body(producer: IdempotentProducer) -> None:
        await producer.send(TOPIC, 0, RECORDS)
        with pytest.raises(RequestRefused):
            await producer.send(TOPIC, 0, RECORDS)
        await producer.send(TOPIC, 0, RECORDS)

    run(script, body)
    assert script.sent() == [(100, 0), (100, 2), (200, 0)]


@pytest.mark.parametrize(
    "codes",
    [
        [None, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER],
        [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.INVALID_PRODUCER_EPOCH],
        [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.TOPIC_AUTHORIZATION_FAILED],
        [ErrorCode.UNKNOWN_SERVER_ERROR],
    ],
    ids=str,
)
def test_a_refusal_after_a_try_that_may_have_landed_is_unknown(codes: list[ErrorCode | None]):
    script = ProduceScript([*codes, OK])

    async def body(producer: IdempotentProducer) -> None:
        with pytest.raises(OutcomeUnknown):
            await producer.send(TOPIC, 0, RECORDS)
        await producer.send(TOPIC, 0, RECORDS)

    run(script, body)
    assert script.sent()[-1] == (200, 0)


def test_a_deadline_after_a_lost_answer_is_unknown_and_the_next_batch_has_a_new_id():
    script = ProduceScript([None, OK])

    async def body(producer: IdempotentProducer) -> None:
        with pytest.raises(OutcomeUnknown, match=f"{TOPIC}-0"):
            await producer.send(TOPIC, 0, RECORDS)
        assert producer.producer_id == -1

    run(script, body, deadline_ms=0)


def test_a_deadline_after_definite_errors_only_is_a_refusal():
    script = ProduceScript([ErrorCode.NOT_ENOUGH_REPLICAS])

    async def body(producer: IdempotentProducer) -> None:
        with pytest.raises(RequestRefused, match="never reached a log") as refused:
            await producer.send(TOPIC, 0, RECORDS)
        assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS

    run(script, body, deadline_ms=0)


def test_a_cancelled_write_makes_the_next_batch_take_a_new_id():
    script = ProduceScript([OK, OK, OK])

    async def body(producer: IdempotentProducer) -> None:
        await producer.send(TOPIC, 0, RECORDS)
        task = asyncio.create_task(producer.send(TOPIC, 0, RECORDS))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await producer.send(TOPIC, 0, RECORDS)

    run(script, body)
    assert script.sent() == [(100, 0), (100, 2), (200, 0)]
