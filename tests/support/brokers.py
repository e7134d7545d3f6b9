"""Brokers in virtual time on one store, asked as clients ask them, for tests of the data path.

A broker that is dropped was killed or is stalled: its lanes are not released.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine, Sequence
from typing import Any
from uuid import UUID

from tests.support.batches import batch
from tests.support.lanes import World
from tests.support.lanes import simulate as simulate_lanes
from tests.support.stores import HookedStore

from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.dispatch import answer
from holdfast.broker.reply_memory import ReplyAccount
from holdfast.broker.settings import BrokerSettings
from holdfast.cluster.topics import decide_create
from holdfast.identifiers import BrokerId
from holdfast.lane.liveness import Liveness
from holdfast.lane.pending import GroupSettings
from holdfast.lane.spool.disk import Disk
from holdfast.log.data_lane import DataLane
from holdfast.log.partition import PartitionLog
from holdfast.log.read_plan import batches_of
from holdfast.protocol.api import Refused
from holdfast.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from holdfast.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from holdfast.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from holdfast.records.record import Record, decode
from holdfast.store.interface import Store

VALID_MS = 5_000
LATEST = -1
EARLIEST = -2


class Cluster(World):
    """A world whose lanes belong to brokers."""

    async def broker(
        self,
        broker_id: int = 1,
        *,
        store: Store | None = None,
        liveness: Liveness | None = None,
        disk: Disk | None = None,
        **settings: Any,
    ) -> Broker:
        broker = self.unstarted(broker_id, store=store, liveness=liveness, disk=disk, **settings)
        await broker.start()
        return broker

    def unstarted(
        self,
        broker_id: int = 1,
        *,
        store: Store | None = None,
        liveness: Liveness | None = None,
        disk: Disk | None = None,
        **settings: Any,
    ) -> Broker:
        settings.setdefault("group", GroupSettings(claim_valid_ms=VALID_MS))
        settings.setdefault("lanes", 1)
        chosen = BrokerSettings(
            broker_id=BrokerId(broker_id), host=f"broker-{broker_id}", port=9092, **settings
        )
        return Broker(
            store=store or self.store,
            environment=self.environment(),
            settings=chosen,
            liveness=liveness,
            disk=disk,
        )

    def store_of_its_own(self) -> HookedStore:
        """The same objects, through a connection that fails by itself."""
        return HookedStore(self.memory)


def simulate(test: Callable[[Cluster], Coroutine[Any, Any, Any]], seed: int = 1) -> Any:
    return simulate_lanes(test, seed, world_type=Cluster)


async def topic(
    broker: Broker, name: str = "t", partitions: int = 1, **configs: str | None
) -> UUID:
    decided = decide_create(
        broker.state,
        topic_id=broker.environment.new_uuid(),
        name=name,
        partitions=partitions,
        replication_factor=1,
        configs={key.replace("_", "."): value for key, value in configs.items()},
    )
    assert not isinstance(decided, Refused), decided
    broker.control.add(decided)
    await broker.flush_control()
    return broker.state.names[name]


def lane_of(broker: Broker, name: str = "t", partition: int = 0) -> DataLane:
    led = broker.led(broker.state.topic_named(name), partition)
    assert led is not None
    return led.lane


def log_of(broker: Broker, name: str = "t", partition: int = 0) -> PartitionLog:
    led = broker.led(broker.state.topic_named(name), partition)
    assert led is not None
    return led.lane.log_of(led.partition)


async def produce(
    broker: Broker,
    values: Sequence[bytes] = (b"value",),
    *,
    name: str = "t",
    partition: int = 0,
    acks: int = -1,
    timeout_ms: int = 30_000,
    version: int = 9,
    raw: bytearray | None = None,
    **more: Any,
) -> PartitionProduceResponse:
    """One batch; the answer for its partition."""
    more.setdefault("timestamp", broker.environment.now_ms())
    records = raw if raw is not None else batch(values, **more)
    response = await answer(
        broker,
        produce_request({(name, partition): records}, acks=acks, timeout_ms=timeout_ms),
        RequestContext(api_version=version),
    )
    return response.responses[0].partition_responses[0]


def produce_request(
    batches: dict[tuple[str, int], bytearray | None], *, acks: int = -1, timeout_ms: int = 30_000
) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                name=name,
                partition_data=[
                    PartitionProduceData(
                        index=partition,
                        records=memoryview(records) if records is not None else None,
                    )
                ],
            )
            for (name, partition), records in batches.items()
        ],
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One partition of a fetch."""

    offset: int = 0
    name: str = "t"
    partition: int = 0
    max_bytes: int = 1 << 20
    epoch: int = -1


async def fetch_all(broker: Broker, asks: Sequence[Ask], **more: Any) -> FetchResponse:
    forgotten: Sequence[Ask] = more.pop("forgotten", ())
    more.setdefault("max_wait_ms", 0)
    more.setdefault("min_bytes", 1)
    more.setdefault("session_epoch", -1)
    version = more.pop("version", 11)
    replies: ReplyAccount = more.pop("replies", None) or ReplyAccount()
    request = FetchRequest(
        topics=[
            FetchTopic(
                topic=ask.name,
                partitions=[
                    FetchPartition(
                        partition=ask.partition,
                        current_leader_epoch=ask.epoch,
                        fetch_offset=ask.offset,
                        partition_max_bytes=ask.max_bytes,
                    )
                ],
            )
            for ask in asks
        ],
        forgotten_topics_data=[
            ForgottenTopic(topic=ask.name, partitions=[ask.partition]) for ask in forgotten
        ],
        **more,
    )
    return await answer(broker, request, RequestContext(api_version=version, replies=replies))


async def fetch(broker: Broker, offset: int = 0, **more: Any) -> PartitionData:
    """The answer for one partition."""
    fields = {f.name for f in dataclasses.fields(Ask)}
    ask = Ask(
        offset=offset, **{k: more.pop(k) for k in list(more) if k in fields and k != "offset"}
    )
    response = await fetch_all(broker, [ask], **more)
    return response.responses[0].partitions[0]


def records_in(part: PartitionData) -> list[Record]:
    return [r for one in batches_of(part.records or []) for r in decode(bytes(one))]


def values_in(part: PartitionData) -> list[bytes | None]:
    return [record.value for record in records_in(part)]


async def read_log(broker: Broker, start: int = 0, **more: Any) -> list[Record]:
    """All records from an offset to the high watermark, fetch by fetch."""
    found: list[Record] = []
    offset = start
    while True:
        part = await fetch(broker, offset, **more)
        assert part.error_code == 0, part
        records = [record for record in records_in(part) if record.offset >= offset]
        if not records:
            assert offset == part.high_watermark
            return found
        found.extend(records)
        offset = records[-1].offset + 1


async def list_offset(
    broker: Broker,
    timestamp: int = LATEST,
    *,
    name: str = "t",
    partition: int = 0,
    epoch: int = -1,
    isolation_level: int = 0,
) -> ListOffsetsPartitionResponse:
    wanted = ListOffsetsPartition(
        partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch
    )
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=name, partitions=[wanted])],
    )
    response = await answer(broker, request, RequestContext(api_version=9))
    return response.topics[0].partitions[0]


async def pass_time(seconds: float) -> None:
    """Virtual time: what is due until then happens, and nobody waits for real."""
    await asyncio.sleep(seconds)
