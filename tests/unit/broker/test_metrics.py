"""What Prometheus is told about groups and transactions."""

from tests.support.async_tests import simulated
from tests.support.brokers import Cluster, pass_time, topic
from tests.support.transactional import TransactionalProducer
from tests.unit.broker.heartbeats import beat, commit, given

from holdfast.broker.broker import Broker
from holdfast.broker.metrics import BrokerCollector
from holdfast.protocol.api import ErrorCode
from holdfast.store.counting import CountingStore


async def told(broker: Broker, name: str, *labels: str) -> float | None:
    """One sample, by the values of its labels."""
    collector = BrokerCollector(broker, CountingStore(broker.store))
    await collector.count_groups()
    for family in collector.collect():
        for sample in family.samples:
            if sample.name == name and tuple(sample.labels.values()) == labels:
                return sample.value
    return None


@simulated
async def test_groups_members_rebalances_and_refused_commits_are_told(world: Cluster):
    broker = await world.broker(lanes=2)
    await topic(broker, partitions=2)
    assert await told(broker, "holdfast_group_members", "consumer") == 0
    await beat(broker, "a", 0, None)
    assert await told(broker, "holdfast_groups", "consumer", "Stable") == 1
    await beat(broker, "b", 0, None)
    assert await told(broker, "holdfast_groups", "consumer", "Reconciling") == 1
    (kept,) = given(await beat(broker, "a", 1, [0, 1]))
    await beat(broker, "a", 1, [kept])
    (moved,) = given(await beat(broker, "b", 2, None))
    assert await told(broker, "holdfast_group_members", "consumer") == 2
    assert await told(broker, "holdfast_group_rebalances_total", "consumer") == 2
    assert await told(broker, "holdfast_group_rebalances_total", "classic") == 0
    assert await told(broker, "holdfast_refused_commits_total") == 0
    assert await commit(broker, "a", 2, moved) is ErrorCode.STALE_MEMBER_EPOCH
    assert await commit(broker, "a", 2, kept) is ErrorCode.NONE
    assert await told(broker, "holdfast_refused_commits_total") == 1


@simulated
async def test_transactions_are_told_by_how_they_ended_and_how_long_one_is_open(world: Cluster):
    broker = await world.broker(lanes=2)
    await topic(broker, partitions=2)
    producer = TransactionalProducer(broker)
    await producer.init(timeout_ms=20_000)
    for committed in (True, True, False):
        assert (await producer.send(0, b"x")).error_code == 0
        assert await told(broker, "holdfast_transactions_open") == 1
        assert await producer.end(committed=committed) is ErrorCode.NONE
    assert await told(broker, "holdfast_transactions_open") == 0
    assert await told(broker, "holdfast_transaction_oldest_open_seconds") == 0
    await producer.send(0, b"hanging")
    high = await told(broker, "holdfast_high_watermark", "t", "0")
    assert high is not None
    assert await told(broker, "holdfast_last_stable_offset", "t", "0") == high - 1
    await pass_time(15)
    oldest = await told(broker, "holdfast_transaction_oldest_open_seconds")
    assert oldest is not None
    assert 14 < oldest < 17
    await pass_time(10)
    for lane in broker.transactions.values():
        await lane.abort_overdue()
    assert await told(broker, "holdfast_transactions_ended_total", "committed") == 2
    assert await told(broker, "holdfast_transactions_ended_total", "aborted") == 1
    assert await told(broker, "holdfast_transactions_ended_total", "timed_out") == 1
    assert await told(broker, "holdfast_transactions_open") == 0
