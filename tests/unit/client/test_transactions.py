"""One transaction by our client, on Holdfast and on Apache Kafka: atomic, fenced, recognised."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence

import pytest
from tests.peers.holdfast import HoldfastBroker
from tests.peers.kafka import KafkaBroker
from tests.support.client_cluster import create_topic, with_client
from tests.support.librdkafka import committed_values

from holdfast.client import groups
from holdfast.client.cluster import Cluster
from holdfast.client.groups import GroupOffset
from holdfast.client.refusals import RequestRefused
from holdfast.client.transactions import FENCED, ClientTransaction, begin_transaction
from holdfast.protocol.consumer_protocol import TopicPartition as Where
from holdfast.records.record import Record, encode_batch

NUMBERS = itertools.count()
NOW_MS = int(time.time() * 1_000)
"""Old records would be taken by retention in the middle of a test."""
TIMEOUT_MS = 30_000


@pytest.fixture(params=["holdfast", pytest.param("kafka", marks=pytest.mark.peer)])
def broker(request: pytest.FixtureRequest) -> HoldfastBroker | KafkaBroker:
    return request.getfixturevalue(f"{request.param}_broker")


def run(
    broker: HoldfastBroker | KafkaBroker, body: Callable[[Cluster, str], Awaitable[None]]
) -> None:
    async def with_topic(cluster: Cluster) -> None:
        await body(cluster, await create_topic(cluster, f"transactions-{next(NUMBERS)}", 2))

    with_client(broker.bootstrap, with_topic)


def batch(*values: bytes) -> bytearray:
    return bytearray(encode_batch([Record(0, NOW_MS, None, value) for value in values]))


async def begun(cluster: Cluster, name: str) -> ClientTransaction:
    return await begin_transaction(cluster, f"sink-{name}", timeout_ms=TIMEOUT_MS)


async def written(transaction: ClientTransaction, name: str, *values: bytes) -> None:
    await transaction.add_partitions([Where(name, 0), Where(name, 1)])
    await transaction.produce(Where(name, 0), [batch(v, v + b"'") for v in values])
    for value in values:
        await transaction.produce(Where(name, 1), [batch(value)])


def test_records_and_offsets_of_a_transaction_are_visible_together_when_it_is_committed(
    broker: HoldfastBroker | KafkaBroker,
):
    async def body(cluster: Cluster, name: str) -> None:
        transaction = await begun(cluster, name)
        await written(transaction, name, b"a", b"b")
        kept = {Where(name, 0): GroupOffset(7, "batch 7")}
        await transaction.commit_offsets(f"group-{name}", kept)
        assert committed_values(broker.bootstrap, name, 0) == []
        assert await groups.committed_positions(cluster, f"group-{name}") == {}
        await transaction.commit()
        found = await groups.committed_positions(
            cluster, f"group-{name}", [Where(name, 0)], stable=True
        )
        assert found == kept
        assert committed_values(broker.bootstrap, name, 0) == [b"a", b"a'", b"b", b"b'"]
        assert committed_values(broker.bootstrap, name, 1) == [b"a", b"b"]

    run(broker, body)


def test_what_was_aborted_is_never_seen_and_the_next_transaction_goes_on(
    broker: HoldfastBroker | KafkaBroker,
):
    async def body(cluster: Cluster, name: str) -> None:
        transaction = await begun(cluster, name)
        await written(transaction, name, b"a")
        await transaction.abort()
        again = await begun(cluster, name)
        await written(again, name, b"b")
        await again.commit()
        assert committed_values(broker.bootstrap, name, 1) == [b"b"]

    run(broker, body)


def test_a_producer_that_was_overtaken_is_fenced_at_each_step_and_what_it_left_is_aborted(
    broker: HoldfastBroker | KafkaBroker,
):
    async def body(cluster: Cluster, name: str) -> None:
        old = await begun(cluster, name)
        await written(old, name, b"old")
        new = await begun(cluster, name)
        kept = {Where(name, 0): GroupOffset(1, "")}
        steps: list[Awaitable[None]] = [
            old.produce(Where(name, 0), [batch(b"late")]),
            old.commit_offsets(f"group-{name}", kept),
            old.commit(),
        ]
        for step in steps:
            with pytest.raises(RequestRefused) as refused:
                await step
            assert refused.value.code in FENCED
        await written(new, name, b"new")
        await new.commit()
        assert committed_values(broker.bootstrap, name, 1) == [b"new"]
        assert await groups.committed_positions(cluster, f"group-{name}") == {}

    run(broker, body)


def test_an_end_that_is_asked_for_twice_ends_once(broker: HoldfastBroker | KafkaBroker):
    async def body(cluster: Cluster, name: str) -> None:
        transaction = await begun(cluster, name)
        await written(transaction, name, b"a")
        await transaction.commit()
        await transaction.commit()
        with pytest.raises(RequestRefused):
            await transaction.abort()
        assert committed_values(broker.bootstrap, name, 1) == [b"a"]

    run(broker, body)


def test_many_batches_are_under_way_at_once_and_land_in_order(
    broker: HoldfastBroker | KafkaBroker,
):
    async def body(cluster: Cluster, name: str) -> None:
        values = [b"%d" % i for i in range(23)]
        transaction = await begun(cluster, name)
        await transaction.add_partitions([Where(name, 0), Where(name, 1)])
        await asyncio.gather(
            *(transaction.produce(Where(name, p), [batch(v) for v in values]) for p in range(2))
        )
        await transaction.commit()
        for partition in range(2):
            assert committed_values(broker.bootstrap, name, partition) == values

    run(broker, body)


def test_batches_that_are_sent_again_are_recognised(
    broker: HoldfastBroker | KafkaBroker, monkeypatch: pytest.MonkeyPatch
):
    """Each window is sent at once, as if an answer were lost, and then again."""
    sent_at_once = ClientTransaction._sent_at_once

    async def lost(self: ClientTransaction, where: Where, window: Sequence[bytearray]) -> bool:
        assert await sent_at_once(self, where, window) is (len(window) > 1)
        return False

    monkeypatch.setattr(ClientTransaction, "_sent_at_once", lost)

    async def body(cluster: Cluster, name: str) -> None:
        values = [b"%d" % i for i in range(12)]
        transaction = await begun(cluster, name)
        await transaction.add_partitions([Where(name, 0)])
        await transaction.produce(Where(name, 0), [batch(value) for value in values])
        await transaction.commit()
        assert committed_values(broker.bootstrap, name, 0) == values

    run(broker, body)
