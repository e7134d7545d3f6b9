"""Any Kafka as an input: the same tests against Holdfast and against Apache Kafka."""

import itertools
import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.peers.holdfast import HoldfastBroker
from tests.peers.jars import PeerUnavailable
from tests.peers.kafka import KafkaBroker

from holdfast.client.refusals import BrokerUnavailable
from holdfast.columnar.schema import SCHEMA_WITH_HEADERS
from holdfast.spark.source.inputs import (
    DataLoss,
    PlanOptions,
    Range,
    SourcePartition,
    read_range,
)
from holdfast.spark.source.kafka_input import KafkaInput
from holdfast.spark.source.kafka_options import client_options
from holdfast.spark.source.where import parse_where

SECONDS_MAX = 30
KEPT = {"retention.ms": "-1"}
"""Timestamps are of 1970, and retention would take the records in the middle of a test."""
_numbers = itertools.count()


class Peer(NamedTuple):
    """A running cluster."""

    broker: HoldfastBroker | KafkaBroker
    admin: AdminClient

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def topic(self, partitions: int = 1) -> str:
        name = f"input-{next(_numbers)}"
        self.create(name, partitions)
        return name

    def create(self, name: str, partitions: int = 1) -> None:
        topic = NewTopic(name, partitions, 1, config=KEPT)
        self.admin.create_topics([topic])[name].result(SECONDS_MAX)

    def delete(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result(SECONDS_MAX)

    def delete_records(self, name: str, before: int) -> None:
        wanted = ClientPartition(name, 0, before)
        self.admin.delete_records([wanted])[wanted].result(SECONDS_MAX)

    def produce(
        self,
        topic: str,
        count: int,
        *,
        first: int = 0,
        timestamp_of: Callable[[int], int] = lambda i: 1_000 + i,
        **settings: Any,
    ) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, **settings})
        for i in range(first, first + count):
            producer.produce(
                topic,
                value=b"v%d" % i,
                key=b"k%d" % i,
                partition=0,
                timestamp=timestamp_of(i),
                headers=[("h", b"%d" % i)],
            )
        assert producer.flush(SECONDS_MAX) == 0

    def source(self, *, read_committed: bool = False, **options: str) -> KafkaInput:
        named = {name.replace("_", "."): value for name, value in options.items()}
        return KafkaInput(client_options(self.bootstrap, named), read_committed=read_committed)


@pytest.fixture(scope="module", params=["holdfast", pytest.param("kafka", marks=pytest.mark.peer)])
def peer(request: pytest.FixtureRequest) -> Peer:
    broker = request.getfixturevalue(f"{request.param}_broker")
    return Peer(broker, AdminClient({"bootstrap.servers": broker.bootstrap}))


@pytest.fixture(params=["holdfast", pytest.param("kafka", marks=pytest.mark.peer)])
def own_peer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Peer]:
    """A cluster that a test may stop."""
    try:
        kind = HoldfastBroker if request.param == "holdfast" else KafkaBroker
        broker = kind(tmp_path)
    except PeerUnavailable as unavailable:
        pytest.skip(str(unavailable))
    try:
        broker.start()
        yield Peer(broker, AdminClient({"bootstrap.servers": broker.bootstrap}))
    finally:
        broker.stop()


def partition_of(source: KafkaInput, topic: str) -> SourcePartition:
    return source.topics()[topic].all_partitions()[0]


def rows_of(ranges: Sequence[Range]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for one in ranges:
        for batch in read_range(pickle.loads(pickle.dumps(one))):
            found.extend(batch.to_pylist())
    return found


def offsets_in(rows: Sequence[dict[str, Any]]) -> list[int]:
    return [row["offset"] for row in rows]


def test_topics_have_ids_and_partitions_and_both_ends(peer: Peer):
    topic = peer.topic(3)
    peer.produce(topic, 50)
    source = peer.source()
    info = source.topics()[topic]
    assert info.partitions == 3
    assert info.topic_id is not None
    partitions = info.all_partitions()
    assert list(source.earliest(partitions).values()) == [0, 0, 0]
    assert list(source.latest(partitions).values()) == [50, 0, 0]
    assert source.by_timestamp({partitions[0]: 1_020, partitions[1]: 0}) == {
        partitions[0]: 20,
        partitions[1]: None,
    }
    assert source.by_timestamp({partitions[0]: 9_999}) == {partitions[0]: None}


def test_no_record_before_the_one_found_by_time_is_as_new_where_times_rise_and_fall(peer: Peer):
    """What a plan leaves out by time rests on this."""
    times = [1_000 + (i * 7_919) % 500 - i // 4 for i in range(600)]
    topic = peer.topic()
    for first in range(0, 600, 50):
        peer.produce(topic, 50, first=first, timestamp_of=lambda i: times[i])
    source = peer.source()
    where = partition_of(source, topic)
    for at in (0, 1, min(times), *range(860, 1_500, 9), max(times), max(times) + 1):
        expected = next((i for i, timestamp in enumerate(times) if timestamp >= at), None)
        assert source.by_timestamp({where: at}) == {where: expected}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_all_records_come_once_in_order_over_many_small_fetches(peer: Peer, codec: str):
    topic = peer.topic()
    peer.produce(topic, 3_000, **{"compression.type": codec, "batch.size": 2_000})
    source = peer.source(fetch_max_bytes="20000")
    where = partition_of(source, topic)
    ranges = source.plan({where: 0}, source.latest([where]), PlanOptions(include_headers=True))
    rows = rows_of(ranges)
    assert offsets_in(rows) == list(range(3_000))
    assert [row["value"] for row in rows] == [b"v%d" % i for i in range(3_000)]
    assert rows[7]["headers"] == [{"key": "h", "value": b"7"}]
    assert rows[7]["timestamp"].timestamp() == 1.007
    assert all(b.schema.equals(SCHEMA_WITH_HEADERS) for r in ranges for b in read_range(r))


def test_a_range_is_cut_to_the_record_and_split_into_tasks(peer: Peer):
    topic = peer.topic()
    peer.produce(topic, 45_000)
    source = peer.source()
    where = partition_of(source, topic)
    assert offsets_in(rows_of(source.plan({where: 17}, {where: 2_002}))) == list(range(17, 2_002))
    ranges = source.plan({where: 5}, {where: 45_000}, PlanOptions(min_partitions=4))
    assert len(ranges) == 4
    assert offsets_in(rows_of(ranges)) == list(range(5, 45_000))
    since = PlanOptions(row_filter=parse_where(f"timestamp > {1_000 + 44_990}"))
    assert offsets_in(rows_of(source.plan({where: 40_000}, {where: 44_995}, since))) == [
        *range(44_991, 44_995)
    ]


def test_records_that_were_deleted_are_a_loss_that_is_named(peer: Peer):
    topic = peer.topic()
    peer.produce(topic, 100)
    source = peer.source()
    where = partition_of(source, topic)
    ranges = source.plan({where: 10}, {where: 100})
    lax = source.plan({where: 10}, {where: 100}, PlanOptions(fail_on_data_loss=False))
    peer.delete_records(topic, 40)
    assert source.earliest([where]) == {where: 40}
    with pytest.raises(DataLoss, match=rf"{topic}-0: offsets 10 to 39 are gone: the log has"):
        rows_of(ranges)
    assert offsets_in(rows_of(lax)) == list(range(40, 100))


def test_offsets_past_the_end_are_a_loss_that_is_named(peer: Peer):
    topic = peer.topic()
    peer.produce(topic, 10)
    source = peer.source(default_api_timeout_ms="1000", fetch_max_wait_ms="100")
    where = partition_of(source, topic)
    with pytest.raises(DataLoss, match=r"offsets 20 to 29 are not there"):
        rows_of(source.plan({where: 20}, {where: 30}))
    with pytest.raises(DataLoss, match=r"offsets 10 to 14 are not there"):
        rows_of(source.plan({where: 5}, {where: 15}))


def test_a_topic_that_was_created_again_is_a_loss_and_not_read(peer: Peer):
    topic = peer.topic()
    peer.produce(topic, 20)
    source = peer.source()
    where = partition_of(source, topic)
    ranges = source.plan({where: 0}, {where: 20})
    assert len(rows_of(ranges)) == 20
    peer.delete(topic)
    with pytest.raises(DataLoss, match="is not there"):
        rows_of(ranges)
    peer.create(topic)
    peer.produce(topic, 50)
    with pytest.raises(DataLoss, match="created again"):
        rows_of(ranges)
    with pytest.raises(DataLoss, match="created again"):
        source.latest([where])


@pytest.mark.peer
def test_aborted_transactions_are_not_read_where_only_committed_ones_are_wanted(
    kafka_broker: KafkaBroker,
):
    peer = Peer(kafka_broker, AdminClient({"bootstrap.servers": kafka_broker.bootstrap}))
    topic = peer.topic()
    producer = Producer(
        {"bootstrap.servers": peer.bootstrap, "transactional.id": topic, "linger.ms": 1}
    )
    producer.init_transactions(SECONDS_MAX)
    for number in range(6):
        producer.begin_transaction()
        for i in range(10):
            producer.produce(topic, value=b"%d-%d" % (number, i), partition=0)
        assert producer.flush(SECONDS_MAX) == 0
        if number % 2:
            producer.abort_transaction(SECONDS_MAX)
        else:
            producer.commit_transaction(SECONDS_MAX)
    expected = [b"%d-%d" % (number, i) for number in (0, 2, 4) for i in range(10)]
    for size in ("300", "1000000"):
        source = peer.source(read_committed=True, fetch_max_bytes=size)
        where = partition_of(source, topic)
        rows = rows_of(source.plan({where: 0}, source.latest([where])))
        assert [row["value"] for row in rows] == expected
    dirty = peer.source(read_committed=False)
    assert len(rows_of(dirty.plan({where: 0}, dirty.latest([where])))) == 60


def test_a_restart_in_the_middle_of_a_range_is_waited_out(own_peer: Peer):
    topic = own_peer.topic()
    own_peer.produce(topic, 20_000, **{"batch.size": 4_000})
    source = own_peer.source(fetch_max_bytes="50000")
    where = partition_of(source, topic)
    (one,) = source.plan({where: 0}, {where: 20_000}, PlanOptions())
    batches = read_range(one)
    rows = next(batches).to_pylist()
    own_peer.broker.stop()
    own_peer.broker.launch()
    for batch in batches:
        rows.extend(batch.to_pylist())
    assert offsets_in(rows) == list(range(20_000))


def test_a_cluster_that_stays_away_is_given_up_by_the_deadline(tmp_path: Path):
    source = KafkaInput(client_options("127.0.0.1:1", {"default.api.timeout.ms": "300"}))
    with pytest.raises(BrokerUnavailable, match="gave up"):
        source.topics()
