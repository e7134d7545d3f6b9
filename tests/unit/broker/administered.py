"""Real brokers on a store in memory, asked through bytes, for the tests of the handlers.

A broker that is abandoned is one that was killed: its lanes are never released, and the next
broker on the same store starts from what is durable.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.support.async_tests import run_by

from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.dispatch import answer
from holdfast.broker.settings import BrokerSettings
from holdfast.environment import SystemEnvironment
from holdfast.identifiers import BrokerId
from holdfast.lane.pending import GroupSettings
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.message import Message
from holdfast.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from holdfast.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from holdfast.protocol.schemas import SCHEMAS
from holdfast.records.record import Record, encode_batch
from holdfast.store.interface import Buffers, CreateAnswer
from holdfast.store.memory import MemoryStore

BROKER_ID = BrokerId(7)
CLAIM_VALID_MS = 20


class GatedStore(MemoryStore):
    """A store whose writes wait while its gate is shut, as in an outage."""

    def __init__(self) -> None:
        super().__init__(environment=SystemEnvironment())
        self.gate = asyncio.Event()
        self.gate.set()

    async def create(self, key: str, body: Buffers) -> CreateAnswer:
        await self.gate.wait()
        return await super().create(key, body)


async def started(store: MemoryStore, **settings: Any) -> Broker:
    """A broker that serves."""
    settings.setdefault("group", GroupSettings(claim_valid_ms=CLAIM_VALID_MS))
    settings.setdefault("broker_id", BROKER_ID)
    broker = Broker(
        store=store,
        environment=SystemEnvironment(),
        settings=BrokerSettings(host="broker.test", port=9092, **settings),
    )
    await broker.start()
    return broker


def run(test: Callable[[GatedStore], Coroutine[Any, Any, None]]) -> None:
    """Run a test on a new store, for at most a while."""

    async def bounded() -> None:
        await asyncio.wait_for(test(GatedStore()), timeout=20)

    asyncio.run(bounded())


on_gated_store = run_by(run)


async def ask(broker: Broker, request: Message, version: int) -> Any:
    """The response as a client of that version sees it: both ways through bytes."""
    _, response_type = SCHEMAS[ApiKey(request.API_KEY)]
    seen = type(request).decode(b"".join(request.encode(version)), version)
    response = await answer(broker, seen, RequestContext(api_version=version))
    return response_type.decode(b"".join(response.encode(version)), version)


async def create(
    broker: Broker, name: str, partitions: int = 1, **configs: str
) -> CreatableTopicResult:
    """A topic that is there when this returns; configs with '_' for '.'."""
    given = [
        CreatableTopicConfig(name=key.replace("_", "."), value=value)
        for key, value in configs.items()
    ]
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name, num_partitions=partitions, replication_factor=1, configs=given
            )
        ],
        timeout_ms=10_000,
    )
    (result,) = (await ask(broker, request, 7)).topics
    assert result.error_code == 0, result
    return result


async def produce(broker: Broker, name: str, count: int, partition: int = 0) -> int:
    """Append `count` records; returns the offset of the first."""
    now_ms = broker.environment.now_ms()
    batch = encode_batch([Record(0, now_ms, b"key", b"value")] * count)
    data = PartitionProduceData(index=partition, records=memoryview(bytearray(batch)))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=name, partition_data=[data])],
    )
    response = await answer(broker, request, RequestContext(api_version=9))
    (result,) = response.responses[0].partition_responses
    assert result.error_code == 0, result
    return result.base_offset


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until something is so."""
    for _ in range(100_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not come about")


def names(results: Any) -> list[str]:
    """The names of the error codes of some results."""
    return [ErrorCode(result.error_code).name for result in results]
