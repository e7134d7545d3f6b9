"""A transactional producer of several brokers: each request goes to the broker that it is for."""

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

from tests.support.brokers import fetch, pass_time
from tests.support.clusters import SETTLED_S, Several
from tests.support.read_committed import read_committed
from tests.support.transactional import (
    BEFORE,
    GROUP,
    NEWEST,
    READ_COMMITTED,
    TransactionalProducer,
    committed_offset,
)

from holdfast.broker.broker import Broker
from holdfast.broker.cluster.peer_network import PEER_CLIENT_ID
from holdfast.broker.context import RequestContext
from holdfast.broker.dispatch import answer
from holdfast.broker.groups.lane_groups import lane_of
from holdfast.client.refusals import RETRIABLE
from holdfast.identifiers import LaneId
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.message import Message
from holdfast.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from holdfast.protocol.messages.end_transaction_parts import LOOK, EndTransactionPartsRequest
from holdfast.protocol.messages.produce import PartitionProduceResponse, ProduceRequest
from holdfast.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from holdfast.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

PEER = RequestContext(api_version=0, client_id=PEER_CLIENT_ID)
LANES = 6
PARTITIONS = 6
TAKEN_OVER_S = 15.0
TRIES_MAX = 400
TRY_EVERY_S = 0.1


@dataclasses.dataclass
class Spread:
    """Brokers that share lanes, and the topic t with a partition in each lane."""

    world: Several
    brokers: list[Broker]

    @classmethod
    async def start(cls, world: Several, count: int = 3, **settings: Any) -> "Spread":
        brokers = [await world.join(i + 1, lanes=LANES, **settings) for i in range(count)]
        return await cls.of(world, brokers)

    @classmethod
    async def of(cls, world: Several, brokers: list[Broker]) -> "Spread":
        topic = CreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=1)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        created = await answer(brokers[0], request, RequestContext(api_version=7))
        assert created.topics[0].error_code == 0
        await pass_time(SETTLED_S)
        return cls(world, brokers)

    def owner(self, lane: int) -> Broker:
        """The newest one that serves a lane."""
        serving = [each for each in self.brokers if LaneId(lane) in each.lanes]
        return max(serving, key=lambda each: each.lanes[LaneId(lane)].leader_epoch)

    def lane(self, partition: int) -> int:
        topic = self.brokers[0].state.topic_named("t")
        assert topic is not None
        found = topic.lane_of(partition)
        assert found is not None
        return found

    def leader(self, partition: int) -> Broker:
        return self.owner(self.lane(partition))

    def coordinator(self, name: str) -> Broker:
        return self.owner(lane_of(name, LANES))

    def name_where(self, wanted: Callable[[Broker], bool]) -> str:
        """A transactional id whose coordinator is as wanted."""
        return next(name for i in range(1000) if wanted(self.coordinator(name := f"billing-{i}")))

    def partitions_of(self, broker: Broker) -> list[int]:
        return [p for p in range(PARTITIONS) if self.leader(p) is broker]

    async def kill(self, broker: Broker) -> None:
        self.brokers.remove(broker)
        await self.world.kill(broker)

    async def committed_values(self, partition: int) -> list[bytes | None]:
        """As a client of committed records sees the partition, up to its last stable offset."""
        found: list[bytes | None] = []
        offset = 0
        for _ in range(100):
            part = await fetch(
                self.leader(partition), offset, partition=partition, isolation_level=READ_COMMITTED
            )
            assert part.error_code == 0, part
            seen, offset = read_committed(part, offset)
            found += [record.value for record in seen]
            if offset >= part.last_stable_offset:
                return found
        raise AssertionError(f"partition {partition} was not read to its end")

    async def is_open(self, partition: int) -> bool:
        """Whether a transaction holds readers of committed records back."""
        part = await fetch(self.leader(partition), 0, partition=partition, max_bytes=1)
        return part.last_stable_offset < part.high_watermark

    async def committed_offset(self, partition: int) -> int:
        return await committed_offset(self.coordinator(GROUP), partition)


async def abort_by_administrator(
    broker: Broker, producer: tuple[int, int], partition: int
) -> ErrorCode:
    marker = WritableTxnMarker(
        producer_id=producer[0],
        producer_epoch=producer[1],
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[partition])],
        coordinator_epoch=9,
    )
    request = WriteTxnMarkersRequest(markers=[marker])
    response = await answer(broker, request, RequestContext(api_version=2))
    return ErrorCode(response.markers[0].topics[0].partitions[0].error_code)


class RoutedProducer(TransactionalProducer):
    """A producer that knows who leads what, and tries again as clients do."""

    def __init__(self, spread: Spread, name: str, versions: dict[str, int] = NEWEST) -> None:
        super().__init__(spread.brokers[0], name, versions)
        self.spread = spread

    async def ask(self, request: Any, version: int) -> Any:
        if isinstance(request, ProduceRequest):
            broker = self.spread.leader(request.topic_data[0].partition_data[0].index)
        elif isinstance(request, TxnOffsetCommitRequest):
            broker = self.spread.coordinator(request.group_id)
        else:
            broker = self.spread.coordinator(self.transactional_id)
        return await answer(broker, request, RequestContext(api_version=version))

    async def started(self, timeout_ms: int = 60_000) -> "RoutedProducer":
        await _again(lambda: self.init(timeout_ms))
        return self

    async def write(self, partition: int, value: bytes) -> PartitionProduceResponse:
        """A record, with all that a client of its version sends for it; tried again, if need be."""
        if self.versions is BEFORE:
            await _again(lambda: self.add(partition))
        for _ in range(TRIES_MAX):
            sequences = dict(self.sequences)
            done = await self.send(partition, value)
            if ErrorCode(done.error_code) not in RETRIABLE:
                assert done.error_code == 0, done
                return done
            self.sequences = sequences
            await asyncio.sleep(TRY_EVERY_S)
        raise AssertionError(f"partition {partition} took no record")

    async def commit_offset_of_group(self, partition: int, offset: int) -> None:
        if self.versions is BEFORE:
            await _again(self.add_group)
        await _again(lambda: self.commit_offset(partition, offset))

    async def commit(self) -> None:
        await _again(lambda: self.end(committed=True))

    async def abort(self) -> None:
        await _again(lambda: self.end(committed=False))


async def _again(ask: Callable[[], Any]) -> None:
    for _ in range(TRIES_MAX):
        error = await ask()
        if error not in RETRIABLE:
            assert error is ErrorCode.NONE, error
            return
        await asyncio.sleep(TRY_EVERY_S)
    raise AssertionError("it never came to an end")


def is_end(request: Message) -> bool:
    """Whether a message ends something, instead of looking what is open."""
    if not isinstance(request, EndTransactionPartsRequest):
        return False
    told = [part.first_offset for part in request.partitions]
    return LOOK not in (*told, *(part.token for part in request.groups))
