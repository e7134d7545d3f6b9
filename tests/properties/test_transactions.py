"""Readers of committed records see exactly those, whatever happens to the log and its owners."""

import asyncio
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.brokers import Cluster, fetch, lane_of, list_offset, log_of, produce, topic
from tests.support.brokers import simulate as simulate_brokers
from tests.support.read_committed import read_committed
from tests.support.stores import HookedStore
from tests.support.transactional import READ_COMMITTED

from holdfast.broker.broker import Broker
from holdfast.broker.transactions.markers import add_marker
from holdfast.follow.follower import StoreFollower
from holdfast.identifiers import PartitionId
from holdfast.log.facts import LogStartMoved
from holdfast.log.read_plan import batches_of
from holdfast.log.rewriter import RewriteSettings, rewrite
from holdfast.records.batch import parse_header

AT_ONCE = RewriteSettings(delete_delay_s=0, segment_bytes_max=400)
PRODUCERS = st.integers(1, 3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("plain"), st.just(0), st.integers(1, 3)),
        st.tuples(st.just("write"), PRODUCERS, st.integers(1, 3)),
        st.tuples(st.just("write"), PRODUCERS, st.integers(1, 3)),
        st.tuples(st.just("commit"), PRODUCERS, st.integers(0, 1)),
        st.tuples(st.just("abort"), PRODUCERS, st.integers(0, 1)),
        st.tuples(st.just("abort"), PRODUCERS, st.integers(0, 1)),
        st.tuples(st.just("start"), st.just(0), st.integers(1, 4)),
        st.tuples(st.just("rewrite"), st.just(0), st.just(0)),
        st.tuples(st.just("snapshot"), st.just(0), st.just(0)),
        st.tuples(st.just("hand over"), st.just(0), st.just(0)),
        st.tuples(st.sampled_from(["crash before", "crash after"]), PRODUCERS, st.integers(0, 2)),
        st.tuples(st.just("read"), st.integers(0, 5), st.integers(1, 400)),
    ),
    min_size=3,
    max_size=40,
)


class Written(NamedTuple):
    """What a client had appended: records of a transaction or plain ones, or an end."""

    base_offset: int
    values: tuple[bytes, ...] = ()
    producer_id: int = 0
    ends: bool | None = None
    """Whether a marker commits."""


class Truth:
    """The log as its clients know it: who wrote what where, and which transaction ended how."""

    def __init__(self) -> None:
        self.written: list[Written] = []

    def cut(self, high_watermark: int) -> None:
        self.written = [one for one in self.written if one.base_offset < high_watermark]

    def first_undecided(self) -> int | None:
        opened: dict[int, int] = {}
        for one in self.written:
            if one.ends is not None:
                opened.pop(one.producer_id, None)
            elif one.producer_id:
                opened.setdefault(one.producer_id, one.base_offset)
        return min(opened.values(), default=None)

    def committed(self, start: int, end: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        for i, one in enumerate(self.written):
            if one.ends is not None:
                continue
            later = (n for n in self.written[i:] if n.producer_id == one.producer_id)
            verdict = next((n.ends for n in later if n.ends is not None), None)
            if one.producer_id == 0 or verdict:
                found += [(one.base_offset + j, value) for j, value in enumerate(one.values)]
        return [pair for pair in found if start <= pair[0] < end]


class Run:
    """One schedule."""

    def __init__(self, world: Cluster) -> None:
        self.world = world
        self.truth = Truth()
        self.told = 0
        self.count = 0
        self.store: HookedStore = world.store_of_its_own()
        self.broker: Broker | None = None

    async def own(self) -> None:
        self.store = self.world.store_of_its_own()
        self.broker = await self.world.broker(store=self.store)
        self.broker.verify_transaction = lambda append: None

    @property
    def live(self) -> Broker:
        assert self.broker is not None
        return self.broker

    async def write(self, producer_id: int, count: int) -> None:
        log = log_of(self.live)
        values = tuple(b"%d-%d" % (self.count, i) for i in range(count))
        self.count += 1
        producer = log.producers.get(producer_id)
        sequence = producer.batches[-1].last_sequence + 1 if producer and producer.batches else 0
        named = (producer_id, producer.epoch if producer else 0, sequence)
        self.truth.written.append(Written(log.log_end_offset, values, producer_id))
        transactional = {"producer": named, "transactional": True} if producer_id else {}
        answer = await produce(self.live, values, **transactional)
        assert answer.error_code == 0, answer

    async def end(self, producer_id: int, bump: int, *, committed: bool) -> None:
        log = log_of(self.live)
        producer = log.producers.get(producer_id)
        led = self.live.led(self.live.state.topic_named("t"), 0)
        assert led is not None
        if producer_id not in log.transactions.open and bump == 0 and producer is not None:
            before = log.log_end_offset
            await self._marked(producer_id, producer.epoch, committed=committed)
            assert log.log_end_offset == before
            return
        self.truth.written.append(
            Written(log.log_end_offset, producer_id=producer_id, ends=committed)
        )
        epoch = producer.epoch + bump if producer else 0
        await self._marked(producer_id, epoch, committed=committed)

    async def _marked(self, producer_id: int, epoch: int, *, committed: bool) -> None:
        led = self.live.led(self.live.state.topic_named("t"), 0)
        assert led is not None
        refused = add_marker(
            led.lane,
            led.partition,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=committed,
            coordinator_epoch=0,
            now_ms=self.live.environment.now_ms(),
        )
        assert refused is None
        await led.lane.flush()

    async def crash(self, moment: str, producer_id: int, what: int) -> None:
        """The owner stalls in a put, before or after its effect, with more decided behind it."""

        async def stall(operation: str, key: str) -> None:
            if operation == "create":
                await asyncio.Event().wait()

        (self.store.before if moment == "crash before" else self.store.after).append(stall)
        waiting = [asyncio.ensure_future(self.write(producer_id, 1))]
        await asyncio.sleep(0.1)
        if what:
            waiting.append(
                asyncio.ensure_future(self.end(producer_id, what % 2, committed=what == 1))
            )
            await asyncio.sleep(0.1)
        await self.read(0, 300)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        old = self.live
        await self.own()
        self.truth.cut(log_of(self.live).high_watermark)
        part = await fetch(old, self.told, isolation_level=READ_COMMITTED)
        assert part.error_code != 0 or part.last_stable_offset in (-1, self.told)

    async def read(self, first: int, bytes_max: int) -> None:
        log = log_of(self.live)
        start = min(log.log_start_offset + first, log.last_stable_offset)
        offset, seen, end = start, [], 0
        while True:
            part = await fetch(
                self.live, offset, isolation_level=READ_COMMITTED, max_bytes=bytes_max
            )
            assert part.error_code == 0
            assert self.told <= part.last_stable_offset <= part.high_watermark
            self.told = end = part.last_stable_offset
            seen += [(r.offset, r.value) for r in read_committed(part, offset).records]
            batches = list(batches_of(part.records or []))
            if not batches:
                break
            offset = parse_header(batches[-1]).last_offset + 1
        assert offset == end
        truth = Truth()
        truth.written = list(self.truth.written)
        truth.cut(log.high_watermark)
        undecided = truth.first_undecided()
        held = log.high_watermark if undecided is None else undecided
        assert end == min(log.high_watermark, max(log.log_start_offset, held))
        assert seen == truth.committed(start, end)
        latest = await list_offset(self.live, isolation_level=READ_COMMITTED)
        assert latest.offset == end

    async def follow(self) -> None:
        """A reader with no broker ends where the broker's readers end, and filters the same."""
        follower = StoreFollower(
            self.world.store_of_its_own(), environment=self.world.environment()
        )
        await follower.refresh()
        log = log_of(self.live)
        bounds = follower.bounds(log.partition, read_committed=True)
        assert bounds == (log.log_start_offset, log.last_stable_offset)
        placed = await follower.place(
            PartitionId(*log.partition), 0, log.high_watermark, read_committed=True
        )
        assert placed is not None
        assert placed.aborted == log.transactions.aborted_within(*bounds)

    async def take(self, step: tuple[str, int, int]) -> None:
        name, first, second = step
        match name:
            case "plain" | "write":
                await self.write(first, second)
            case "commit" | "abort":
                await self.end(first, second, committed=name == "commit")
            case "start":
                log = log_of(self.live)
                offset = min(log.high_watermark, log.log_start_offset + second)
                if offset > log.start_decided:
                    lane_of(self.live).add(LogStartMoved(log.partition, offset))
                    await lane_of(self.live).flush()
            case "rewrite":
                await rewrite(lane_of(self.live), AT_ONCE)
            case "snapshot":
                await lane_of(self.live).snapshot_now()
            case "hand over":
                await self.live.stop(release=True)
                await self.own()
            case "read":
                await self.read(first, second)
            case _:
                await self.crash(name, first, second)


@settings(max_examples=200, deadline=None)
@given(steps=STEPS, seed=st.integers(0, 1 << 16))
def test_a_reader_of_committed_records_sees_exactly_those_and_its_end_never_goes_back(
    steps: list[tuple[str, int, int]], seed: int
):
    async def test(world: Cluster) -> None:
        run = Run(world)
        await run.own()
        await topic(run.live)
        for step in steps:
            await run.take(step)
        await run.read(0, 1 << 20)
        await run.follow()

    simulate_brokers(test, seed)
