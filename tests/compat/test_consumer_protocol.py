"""Groups of the new consumer protocol (KIP-848), as librdkafka runs them."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.compat import group_member
from tests.compat.families.interface import Record
from tests.compat.families.librdkafka import Librdkafka
from tests.peers.holdfast import HoldfastBroker
from tests.peers.kafka import KafkaBroker
from tests.peers.process import Process, wait_until

PARTITIONS = 6
REBALANCE_SECONDS_MAX = 90.0


class Member:
    """One consumer, and what it has read and committed."""

    def __init__(self, bootstrap: str, group: str, topic: str, **settings: str) -> None:
        self.values: list[bytes] = []
        self.revoked: list[int] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self._consumer.subscribe([topic], on_revoke=self._on_revoke)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.revoked += [partition.partition for partition in partitions]
        positions = [p for p in consumer.position(partitions) if p.offset >= 0]
        if positions:
            consumer.commit(offsets=positions, asynchronous=False)

    def poll(self) -> None:
        message = self._consumer.poll(0.05)
        if message is not None:
            assert message.error() is None
            self.values.append(message.value())

    def assigned(self) -> list[int]:
        return sorted(partition.partition for partition in self._consumer.assignment())

    def committed(self, topic: str) -> list[int]:
        wanted = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        return [found.offset for found in self._consumer.committed(wanted, timeout=20)]

    def close(self) -> None:
        self._consumer.close()


def until(condition: Callable[[], bool], *members: Member, what: str) -> None:
    """Poll all members until the condition holds."""

    def holds() -> bool:
        for member in members:
            member.poll()
        return condition()

    wait_until(holds, seconds_max=REBALANCE_SECONDS_MAX, what=what)


@pytest.fixture
def admin(cluster: KafkaBroker | HoldfastBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


@pytest.fixture
def topic(topic_name: str, admin: AdminClient) -> str:
    admin.create_topics([NewTopic(topic_name, PARTITIONS, 1)])[topic_name].result(20)
    return topic_name


@pytest.fixture
def new_member(
    cluster: KafkaBroker | HoldfastBroker, topic: str
) -> Iterator[Callable[..., Member]]:
    opened: list[Member] = []

    def new(**settings: str) -> Member:
        wanted = settings.pop("subscribe", topic)
        opened.append(Member(cluster.bootstrap, f"group-of-{topic}", wanted, **settings))
        return opened[-1]

    yield new
    for member in opened:
        member.close()


def are_split(first: Member, second: Member) -> bool:
    both = sorted(first.assigned() + second.assigned())
    return both == list(range(PARTITIONS)) and len(first.assigned()) == PARTITIONS // 2


def produce(cluster: KafkaBroker | HoldfastBroker, topic: str, count: int) -> None:
    client = Librdkafka(cluster.bootstrap)
    try:
        client.produce(
            topic, [Record(value=b"%d" % n, partition=n % PARTITIONS) for n in range(count)]
        )
    finally:
        client.close()


def test_a_member_that_joins_later_takes_over_where_the_first_has_committed(
    cluster: KafkaBroker | HoldfastBroker, topic: str, new_member: Callable[..., Member]
):
    produce(cluster, topic, 60)
    first = new_member()
    until(lambda: len(first.values) == 60, first, what="the first member has read everything")
    assert first.assigned() == list(range(PARTITIONS))
    second = new_member()
    until(lambda: are_split(first, second), first, second, what="two members share the topic")
    assert sorted(first.revoked) == second.assigned()
    committed = second.committed(topic)
    assert [committed[number] for number in second.assigned()] == [10, 10, 10]
    assert second.values == []


def test_what_a_member_had_that_leaves_is_taken_over(topic: str, new_member: Callable[..., Member]):
    first, second = new_member(), new_member()
    until(lambda: are_split(first, second), first, second, what="two members share the topic")
    second.close()
    until(lambda: len(first.assigned()) == PARTITIONS, first, what="the first has everything")


def test_a_group_is_listed_and_described(
    topic: str, new_member: Callable[..., Member], admin: AdminClient
):
    member = new_member(client_id="teller")
    until(lambda: len(member.assigned()) == PARTITIONS, member, what="the member has everything")
    group = f"group-of-{topic}"
    listed = {g.group_id: g for g in admin.list_consumer_groups().result(20).valid}
    assert listed[group].type is ConsumerGroupType.CONSUMER
    assert listed[group].state is ConsumerGroupState.STABLE
    described = admin.describe_consumer_groups([group])[group].result(20)
    assert described.state is ConsumerGroupState.STABLE
    (only,) = described.members
    assert only.client_id == "teller"
    assert sorted(p.partition for p in only.assignment.topic_partitions) == list(range(PARTITIONS))
    assert {p.topic for p in only.assignment.topic_partitions} == {topic}


def test_topics_are_subscribed_to_by_a_regular_expression(
    topic: str, new_member: Callable[..., Member]
):
    member = new_member(subscribe=f"^{topic[:-2]}.*")
    until(lambda: len(member.assigned()) >= PARTITIONS, member, what="the topic is matched")


@pytest.mark.slow
def test_what_a_killed_member_had_is_taken_over_when_its_session_ends(
    cluster: KafkaBroker | HoldfastBroker,
    topic: str,
    new_member: Callable[..., Member],
    tmp_path: Path,
):
    first = new_member()
    until(lambda: len(first.assigned()) == PARTITIONS, first, what="the first has everything")
    command = [sys.executable, group_member.__file__, cluster.bootstrap, f"group-of-{topic}", topic]
    second = Process(command, log=tmp_path / "member.log")
    try:
        shared = f"assigned {PARTITIONS // 2}"
        until(lambda: shared in second.log_text(), first, what="two members share the topic")
        second.kill()
        assert len(first.assigned()) == PARTITIONS // 2
        until(lambda: len(first.assigned()) == PARTITIONS, first, what="the first has everything")
    finally:
        second.stop()
