"""Commits into topics of a real Holdfast and a real Kafka: a crash before and after every step."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.peers.holdfast import HoldfastBroker
from tests.peers.kafka import KafkaBroker
from tests.support.client_cluster import create_topic, with_client
from tests.support.librdkafka import committed_values

from holdfast.client.cluster import Cluster
from holdfast.client.refusals import OutcomeUnknown
from holdfast.environment import SystemEnvironment
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.records.record import Record, encode_batch
from holdfast.spark.topic.commit import TopicCommit, TopicSinkRefused, planned_offsets
from holdfast.spark.topic.options import TopicOptions, parse_topic_options
from holdfast.spark.topic.position import Position
from holdfast.spark.topic.rows import Staged

NUMBERS = itertools.count()
NOW_MS = int(time.time() * 1_000)
"""Old records would be taken by retention in the middle of a test."""
STEPS = ("look", "begin", "look again", "add", "produce", "offsets", "end", "ended")


@pytest.fixture(params=["holdfast", pytest.param("kafka", marks=pytest.mark.peer)])
def broker(request: pytest.FixtureRequest) -> HoldfastBroker | KafkaBroker:
    return request.getfixturevalue(f"{request.param}_broker")


class Crashed(BaseException):
    """Nothing that a product catches by name."""


class Sink:
    """One sink on one cluster, and drivers of it that come and go."""

    def __init__(self, cluster: Cluster, options: TopicOptions, bootstrap: str) -> None:
        self.cluster = cluster
        self.options = options
        self._bootstrap = bootstrap

    def driver(self, at: Callable[[str], None] = lambda _: None) -> TopicCommit:
        return TopicCommit(self.cluster, self.options, at=at)

    async def run(self, batch_id: int, at: Callable[[str], None] = lambda _: None) -> bool:
        return await self.driver(at).commit(self.staged(batch_id), batch(batch_id))

    def staged(self, batch_id: int) -> list[Staged]:
        """Two records in each of two partitions, in a batch of each task."""
        topic = self.options.position_topic
        return [
            Staged(TopicPartition(topic, partition), 1, bytearray(encode_batch([record])))
            for task in range(2)
            for partition in range(2)
            for record in [Record(0, NOW_MS, None, f"{batch_id}-{task}-{partition}".encode())]
        ]

    def seen(self) -> list[list[bytes]]:
        topic = self.options.position_topic
        return [committed_values(self._bootstrap, topic, partition) for partition in range(2)]


def batch(batch_id: int, *, query: str = "q") -> Position:
    return Position(query_id=query, batch_id=batch_id, offsets="")


def whole(*batch_ids: int) -> list[list[bytes]]:
    return [
        [f"{batch_id}-{task}-{partition}".encode() for batch_id in batch_ids for task in range(2)]
        for partition in range(2)
    ]


def run(broker: HoldfastBroker | KafkaBroker, body: Callable[[Sink], Awaitable[None]]) -> None:
    async def with_sink(cluster: Cluster) -> None:
        name = await create_topic(cluster, f"commits-{next(NUMBERS)}", 2)
        raw = {"kafka.bootstrap.servers": broker.bootstrap, "topic": name, "sinkId": name}
        await body(Sink(cluster, parse_topic_options(raw), broker.bootstrap))

    with_client(broker.bootstrap, with_sink, seconds_max=120)


def test_each_micro_batch_is_there_once_and_one_that_comes_again_is_known(
    broker: HoldfastBroker | KafkaBroker,
):
    async def body(sink: Sink) -> None:
        assert await sink.run(0)
        assert not await sink.run(0)
        assert await sink.driver().commit([], batch(1))
        assert await sink.run(2)
        assert not await sink.run(2)
        with pytest.raises(TopicSinkRefused, match="old copy"):
            await sink.run(1)
        with pytest.raises(TopicSinkRefused, match="another query"):
            await sink.driver().commit(sink.staged(0), batch(0, query="other"))
        assert sink.seen() == whole(0, 2)

    run(broker, body)


def test_a_driver_that_dies_before_any_step_leaves_all_of_a_micro_batch_or_nothing(
    broker: HoldfastBroker | KafkaBroker,
):
    async def body(sink: Sink) -> None:
        for batch_id, step in enumerate(STEPS):

            def crash(now: str, step: str = step) -> None:
                if now == step:
                    raise Crashed

            with pytest.raises(Crashed):
                await sink.run(batch_id, crash)
            was_there = step == "ended"
            assert await sink.run(batch_id) is not was_there
        assert sink.seen() == whole(*range(len(STEPS)))

    run(broker, body)


def test_a_commit_whose_answer_is_lost_is_resolved_by_another_look(
    broker: HoldfastBroker | KafkaBroker,
):
    async def body(sink: Sink) -> None:
        for batch_id, step in enumerate(("end", "ended")):
            lost: list[str] = []

            def lose(now: str, step: str = step, lost: list[str] = lost) -> None:
                if now == step and not lost:
                    lost.append(now)
                    raise OutcomeUnknown("nobody answers")

            assert await sink.run(batch_id, lose) is (step == "end")
            assert lost
        assert sink.seen() == whole(0, 1)

    run(broker, body)


@pytest.mark.parametrize("step", STEPS[2:-1])
def test_a_driver_that_is_overtaken_at_any_step_publishes_nothing(
    broker: HoldfastBroker | KafkaBroker, step: str
):
    async def body(sink: Sink) -> None:
        assert await sink.run(0)
        slept, woken = asyncio.Event(), asyncio.Event()

        async def zombie() -> str:
            loop = asyncio.get_running_loop()

            def sleep(now: str) -> None:
                if now == step and not slept.is_set():
                    loop.call_soon_threadsafe(slept.set)
                    asyncio.run_coroutine_threadsafe(woken.wait(), loop).result(60)

            def in_a_thread() -> str:
                async def alone() -> str:
                    async with Cluster(
                        sink.options.client.bootstrap,
                        environment=SystemEnvironment(),
                        deadline_ms=20_000,
                    ) as cluster:
                        again = TopicCommit(cluster, sink.options, at=sleep)
                        try:
                            await again.commit(sink.staged(1), batch(1))
                        except TopicSinkRefused as refused:
                            return str(refused)
                        return "published"

                return asyncio.run(alone())

            return await asyncio.to_thread(in_a_thread)

        first = asyncio.create_task(zombie())
        await slept.wait()
        assert await sink.run(1)
        assert await sink.run(2)
        woken.set()
        assert "another driver has gone on" in await first
        assert await sink.run(3)
        assert sink.seen() == whole(0, 1, 2, 3)

    run(broker, body)


def test_a_position_that_the_cluster_forgot_is_asked_for_and_then_kept(
    broker: HoldfastBroker | KafkaBroker,
):
    async def body(sink: Sink) -> None:
        with pytest.raises(TopicSinkRefused, match="committedBatch"):
            await sink.run(5)
        sink.options = replace(sink.options, committed_batch=5)
        assert await sink.run(5)
        assert not await sink.run(5)
        assert await sink.run(6)
        assert sink.seen() == whole(6)

    run(broker, body)


def test_the_plan_of_a_micro_batch_is_known_by_spark_s_own_file(tmp_path: Path):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").write_text("v1\n{}\n{}")
    plain = planned_offsets(str(tmp_path), 3)
    assert len(plain) == 32
    assert planned_offsets(f"file://{tmp_path}", 3) == planned_offsets(f"file:{tmp_path}", 3)
    assert planned_offsets(f"file://{tmp_path}", 3) == plain
    assert planned_offsets(str(tmp_path), 4) == ""
    assert planned_offsets("s3a://bucket/checkpoint", 3) == ""
    assert planned_offsets(None, 3) == ""
