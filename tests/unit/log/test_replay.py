"""Replay equals the live path: at each number the recovered state is the state that was held."""

import asyncio
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.lanes import LANE, P0, P1, World, append, end, simulate

from holdfast.identifiers import PartitionId
from holdfast.lane.entry import SealedEntry
from holdfast.lane.keys import entry_key
from holdfast.lane.recovery import recover
from holdfast.log.data_lane import DataLane
from holdfast.log.facts import (
    LogStartMoved,
    PartitionPurged,
    PartitionRemoved,
    ProducersExpired,
)
from holdfast.log.rewriter import RewriteSettings, rewrite
from holdfast.log.state import LogStateKind

PARTITIONS = (P0, P1, PartitionId(P0.topic_id, 2))

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 2), st.integers(1, 3)),
        st.tuples(st.just("idempotent"), st.integers(0, 2), st.integers(0, 1)),
        st.tuples(st.just("transactional"), st.integers(0, 2), st.integers(2, 3)),
        st.tuples(st.just("commit"), st.integers(0, 2), st.integers(2, 3)),
        st.tuples(st.just("abort"), st.integers(0, 2), st.integers(2, 3)),
        st.tuples(st.just("start"), st.integers(0, 2), st.integers(0, 9)),
        st.tuples(st.just("remove"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("expire"), st.integers(0, 5_000), st.just(0)),
        st.tuples(st.just("flush"), st.just(0), st.just(0)),
        st.tuples(st.just("wait"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("rewrite"), st.just(0), st.just(0)),
        st.tuples(st.just("claim"), st.just(0), st.just(0)),
        st.tuples(st.just("snapshot"), st.just(0), st.just(0)),
    ),
    min_size=1,
    max_size=40,
)


class Recorder(DataLane):
    """A lane that notes its state whenever that is exactly the state of a number."""

    seen: dict[int, bytes]

    async def _is_stored(self, sealed: SealedEntry) -> bool:
        is_last = not self._pending and (self.queue is None or not self.queue.has_untaken())
        if is_last:
            self.seen[sealed.header.number] = self.state.encode()
        return await super()._is_stored(sealed)


async def own(world: World, seen: dict[int, bytes]) -> DataLane:
    lane = await world.own(snapshot_every=7, lane_type=Recorder)
    assert isinstance(lane, Recorder)
    lane.seen = seen
    seen[lane.cursor.claim] = lane.state.encode()
    return lane


def of_a_new_topic(partition: PartitionId) -> PartitionId:
    """A deleted topic's id is never used again, so neither are its partitions."""
    return PartitionId(UUID(int=partition.topic_id.int + 1), partition.partition)


async def take(lane: DataLane, step: tuple[str, int, int], partitions: list[PartitionId]) -> None:
    name, first, second = step
    partition = partitions[first] if first < 3 else partitions[0]
    log = lane.log_of(partition)
    match name:
        case "append":
            append(lane, partition, [b"x"] * second)
        case "idempotent" | "transactional":
            producer = log.producers.get(second)
            known = producer is not None and bool(producer.batches)
            sequence = producer.batches[-1].last_sequence + 1 if producer and known else 0
            epoch = producer.epoch if producer is not None else 0
            is_transactional = name == "transactional"
            named = (second, epoch, sequence)
            append(lane, partition, producer=named, transactional=is_transactional)
        case "commit" | "abort":
            producer = log.producers.get(second)
            epoch = producer.epoch + second % 2 if producer is not None else 0
            end(lane, second, epoch, committed=name == "commit", partition=partition)
        case "start":
            offset = min(log.high_watermark, log.start_decided + second)
            if offset > log.start_decided:
                lane.add(LogStartMoved(partition, offset))
        case "remove":
            if partition in lane.state.partitions:
                lane.add(PartitionRemoved(partition))
                partitions[first] = of_a_new_topic(partition)
            elif lane.state.removed:
                lane.add(PartitionPurged(next(iter(lane.state.removed))))
        case "expire":
            lane.add(ProducersExpired(lane.environment.now_ms() - first))
        case "flush":
            await lane.flush()
        case "wait":
            await asyncio.sleep(first)
        case "rewrite":
            await rewrite(lane, RewriteSettings(delete_delay_s=0, segment_bytes_max=400))
        case _:
            await lane.snapshot_now()


@settings(max_examples=200, deadline=None)
@given(steps=STEPS, seed=st.integers(0, 1 << 16))
def test_the_state_recovered_at_each_number_is_the_state_that_was_held_there(
    steps: list[tuple[str, int, int]], seed: int
):
    async def test(world: World) -> None:
        kept: dict[str, bytes] = {}

        async def keep(operation: str, key: str) -> None:
            if operation == "create" and key.startswith("lanes/"):
                kept[key] = await world.body(key)

        world.store.after.append(keep)
        seen: dict[int, bytes] = {}
        partitions = list(PARTITIONS)
        lane = await own(world, seen)
        for step in steps:
            if step[0] == "claim":
                await lane.flush()
                lane = await own(world, seen)
            else:
                await take(lane, step, partitions)
        await lane.flush()
        assert lane.cursor.next_number - 1 in seen
        recovered = await recover(world.memory, world.environment(), LANE, LogStateKind())
        assert recovered.cursor == lane.cursor
        assert recovered.state.encode() == lane.state.encode()
        for partition, log in lane.state.partitions.items():
            other = recovered.state.partitions[partition]
            assert other.high_watermark == log.high_watermark == log.log_end_offset
            assert other.log_start_offset == log.log_start_offset == log.start_decided
        await compare_each_number(world, kept, seen)

    simulate(test, seed)


async def compare_each_number(world: World, kept: dict[str, bytes], seen: dict[int, bytes]) -> None:
    """Put the lane's objects back one at a time, without snapshots or floors."""
    replay = World(world.loop)
    for number in range(len(kept)):
        key = entry_key(LANE, number)
        await replay.memory.create(key, [kept[key]])
        if number in seen:
            found = await recover(replay.memory, replay.environment(), LANE, LogStateKind())
            assert found.cursor.next_number == number + 1
            assert found.state.encode() == seen[number], f"number {number}"
