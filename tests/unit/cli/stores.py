"""Stores for inspection, made by the broker's own code: all kinds of objects, several owners."""

import asyncio
from pathlib import Path

from holdfast.broker.broker import Broker
from holdfast.broker.settings import BrokerSettings
from holdfast.cluster.facts import TopicCreated, TopicDeleted
from holdfast.cluster.topics import decide_create
from holdfast.environment import SystemEnvironment
from holdfast.identifiers import BrokerId, PartitionId
from holdfast.lane.pending import GroupSettings
from holdfast.log.append import Accepted, AppendRules, decide_append
from holdfast.log.facts import LogStartMoved
from holdfast.log.rewriter import RewriteSettings, rewrite
from holdfast.records.batch import parse_header
from holdfast.records.record import Record, encode_batch
from holdfast.records.stamp import stamp
from holdfast.store.directory import DirectoryStore

REWRITE_AT_ONCE = RewriteSettings(delete_delay_s=0.0, segment_bytes_max=2_000)


def settings(broker_id: int = 0) -> BrokerSettings:
    return BrokerSettings(
        broker_id=BrokerId(broker_id),
        host="127.0.0.1",
        port=9092,
        lanes=2,
        group=GroupSettings(claim_valid_ms=100),
    )


class StoreBuilder:
    """One broker after another on one directory."""

    def __init__(self, folder: Path) -> None:
        self.environment = SystemEnvironment()
        self.store = DirectoryStore(str(folder), sync=False)
        self.broker: Broker | None = None

    async def start(self, broker_id: int = 0) -> Broker:
        self.broker = Broker(
            store=self.store, environment=self.environment, settings=settings(broker_id)
        )
        await self.broker.start()
        return self.broker

    async def topic(self, name: str, partitions: int) -> None:
        broker = self.broker
        assert broker is not None
        decided = decide_create(
            broker.state,
            topic_id=self.environment.new_uuid(),
            name=name,
            partitions=partitions,
            replication_factor=1,
            configs={"retention.ms": "-1"},
        )
        assert isinstance(decided, TopicCreated)
        broker.control.add(decided)
        await broker.flush_control()

    async def delete_topic(self, name: str) -> None:
        assert self.broker is not None
        topic = self.broker.state.topic_named(name)
        assert topic is not None
        self.broker.control.add(TopicDeleted(topic.topic_id))
        await self.broker.flush_control()

    async def append(self, name: str, partition: int, count: int) -> None:
        """One lane object with one batch of `count` records."""
        assert self.broker is not None
        led = self.broker.led(self.broker.state.topic_named(name), partition)
        assert led is not None
        now_ms = self.environment.now_ms()
        records = [Record(0, now_ms, b"key", b"value" * 10) for _ in range(count)]
        batch = bytearray(encode_batch(records))
        log = led.lane.log_of(led.partition)
        decided = decide_append(log, parse_header(batch), AppendRules(), now_ms)
        assert isinstance(decided, Accepted)
        stamp(batch, base_offset=decided.fact.base_offset, leader_epoch=led.lane.leader_epoch)
        led.lane.add(decided.fact, batch)
        barrier = led.lane.barrier()
        assert barrier is not None
        await barrier

    async def move_log_start(self, name: str, partition: int, offset: int) -> None:
        assert self.broker is not None
        led = self.broker.led(self.broker.state.topic_named(name), partition)
        assert led is not None
        led.lane.add(LogStartMoved(led.partition, offset))

    async def rewrite_all(self) -> None:
        assert self.broker is not None
        for lane in self.broker.lanes.values():
            await rewrite(lane, REWRITE_AT_ONCE)

    async def stop(self, *, release: bool) -> None:
        assert self.broker is not None
        await self.broker.stop(release=release)

    def partition(self, name: str, partition: int) -> PartitionId:
        assert self.broker is not None
        return PartitionId(self.broker.state.names[name], partition)


async def _build(folder: Path) -> None:
    """Segments, runs behind them, a floor with claims below it, a release and a take-over."""
    builder = StoreBuilder(folder)
    await builder.start()
    await builder.topic("orders", 2)
    for i in range(12):
        await builder.append("orders", i % 2, 3 + i)
    await builder.stop(release=False)
    await builder.start(1)
    for i in range(4):
        await builder.append("orders", i % 2, 5)
    await builder.rewrite_all()
    for i in range(4):
        await builder.append("orders", i % 2, 7)
    await builder.move_log_start("orders", 0, 5)
    await builder.stop(release=True)
    await builder.start(2)
    await builder.topic("payments", 3)
    await builder.append("payments", 1, 2)
    await builder.append("orders", 0, 1)
    await builder.stop(release=False)
    await builder.store.close()


def build_store(folder: Path) -> Path:
    """A store of 2 data lanes and topics orders (2 partitions) and payments (3)."""
    asyncio.run(_build(folder))
    return folder
