"""Stores on a directory that the broker's own code fills, changes and leaves, between two reads."""

import asyncio
import pickle
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from tests.unit.cli.stores import StoreBuilder

from holdfast.broker.cluster.directory import Led
from holdfast.broker.transactions.markers import add_marker
from holdfast.log.append import Accepted, AppendRules, decide_append
from holdfast.log.facts import PartitionRemoved
from holdfast.log.rewriter import RewriteSettings, collect, purge_removed, rewrite
from holdfast.records.batch import parse_header
from holdfast.records.compression import Codec
from holdfast.records.record import Record, encode_batch
from holdfast.records.stamp import stamp
from holdfast.spark.source.inputs import Range, read_range

TOPIC = "t"


def value_of(offset: int) -> bytes:
    return b"value-%d-" % offset + b"x" * (offset % 50)


class Filler(StoreBuilder):
    """A builder whose values say their offsets."""

    def append_next(
        self,
        count: int,
        *,
        partition: int = 0,
        timestamp: int = 1_000,
        codec: Codec = Codec.NONE,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        producer_id: int = -1,
    ) -> None:
        """One batch, of a transaction where there is a producer; it shares a lane object with
        others until the next flush."""
        led = self.led(partition)
        log = led.lane.log_of(led.partition)
        first = log.log_end_offset
        records = [
            Record(0, timestamp, b"k%d" % offset, value_of(offset), headers)
            for offset in range(first, first + count)
        ]
        known = log.producers.get(producer_id)
        sequence = known.batches[-1].last_sequence + 1 if known and known.batches else 0
        batch = bytearray(
            encode_batch(
                records,
                codec=codec,
                producer_id=producer_id,
                producer_epoch=-1 if producer_id < 0 else known.epoch if known else 0,
                base_sequence=sequence if producer_id >= 0 else -1,
                transactional=producer_id >= 0,
            )
        )
        rules = AppendRules(timestamp_after_max_ms=1 << 62)
        decided = decide_append(log, parse_header(batch), rules, self.environment.now_ms())
        assert isinstance(decided, Accepted)
        stamp(batch, base_offset=decided.fact.base_offset, leader_epoch=led.lane.leader_epoch)
        led.lane.add(decided.fact, batch)

    def led(self, partition: int = 0) -> Led:
        assert self.broker is not None
        led = self.broker.led(self.broker.state.topic_named(TOPIC), partition)
        assert led is not None
        return led

    async def end(self, producer_id: int, *, committed: bool, partition: int = 0) -> None:
        """A marker, in a lane object with what was appended before it."""
        led = self.led(partition)
        refused = add_marker(
            led.lane,
            led.partition,
            producer_id=producer_id,
            producer_epoch=led.lane.log_of(led.partition).producers[producer_id].epoch,
            committed=committed,
            coordinator_epoch=0,
            now_ms=self.environment.now_ms(),
        )
        assert refused is None
        await led.lane.flush()

    async def flush(self) -> None:
        assert self.broker is not None
        for lane in self.broker.lanes.values():
            await lane.flush()

    async def fill(self, batches: int, count: int = 20, *, partition: int = 0) -> None:
        """One lane object for each batch."""
        for i in range(batches):
            self.append_next(count, partition=partition, timestamp=1_000 + i)
            await self.flush()

    async def rewrite(self, segment_bytes_max: int = 1 << 20) -> None:
        """All into segments; what they replace is deleted at once."""
        assert self.broker is not None
        settings = RewriteSettings(delete_delay_s=0.0, segment_bytes_max=segment_bytes_max)
        for lane in self.broker.lanes.values():
            await rewrite(lane, settings)

    async def delete_records(self, partition: int, before: int) -> None:
        await self.move_log_start(TOPIC, partition, before)
        await self.flush()
        assert self.broker is not None
        for lane in self.broker.lanes.values():
            await rewrite(lane, RewriteSettings(delete_delay_s=0.0))
            await collect(lane)

    async def remove_topic(self) -> None:
        """With all that it has in the store."""
        assert self.broker is not None
        topic = self.broker.state.topic_named(TOPIC)
        assert topic is not None
        await self.delete_topic(TOPIC)
        for lane in self.broker.lanes.values():
            for partition in topic.partition_ids():
                if partition in lane.state.partitions:
                    lane.add(PartitionRemoved(partition))
            await lane.flush()
            await purge_removed(lane)
            await rewrite(lane, RewriteSettings(delete_delay_s=0.0))


def change(folder: Path, *steps: Callable[[Filler], Awaitable[object]]) -> None:
    """A broker starts on the store, takes the steps, and stops."""

    async def run() -> None:
        builder = Filler(folder)
        await builder.start()
        for step in steps:
            await step(builder)
        await builder.stop(release=True)
        await builder.store.close()

    asyncio.run(run())


def made(folder: Path, *steps: Callable[[Filler], Awaitable[object]], partitions: int = 1) -> str:
    """A store with the topic, changed by these steps; returns its address."""
    change(folder, lambda b: b.topic(TOPIC, partitions), *steps)
    return str(folder)


def offsets_in(rows: Sequence[dict[str, object]]) -> list[object]:
    return [row["offset"] for row in rows]


def rows_of(ranges: Sequence[Range]) -> list[dict[str, Any]]:
    """What tasks give, each with a Range that went over a wire."""
    found: list[dict[str, Any]] = []
    for one in ranges:
        for batch in read_range(pickle.loads(pickle.dumps(one))):
            found.extend(batch.to_pylist())
    return found
