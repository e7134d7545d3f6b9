"""Groups whose members are processes of five clients: they join, leave, are killed and paused."""

from collections.abc import Callable, Sequence

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.compat.conftest import StartProgram
from tests.peers.holdfast import HoldfastBroker
from tests.peers.kafka import KafkaBroker
from tests.peers.process import wait_until
from tests.support.client_process import PROGRAMS, ClientProcess, Program, ProgramAbility

Cluster = KafkaBroker | HoldfastBroker
PARTITIONS = 6
REBALANCE_SECONDS_MAX = 90.0


class Feed:
    """Numbered records, the same number to each partition."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.sent: list[str] = []
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 5})

    def send(self, per_partition: int) -> None:
        for _ in range(per_partition):
            for partition in range(PARTITIONS):
                value = str(len(self.sent))
                self._producer.produce(self._topic, value=value.encode(), partition=partition)
                self.sent.append(value)
        assert self._producer.flush(30) == 0


@pytest.fixture
def topic(partitioned_topic: Callable[[int], str]) -> str:
    return partitioned_topic(PARTITIONS)


@pytest.fixture
def feed(cluster: Cluster, topic: str) -> Feed:
    return Feed(cluster, topic)


@pytest.fixture
def join(start_program: StartProgram, topic: str) -> Callable[..., ClientProcess]:
    """A new member of the topic's group; it commits what it has read before it gives it away."""

    def start(program: Program, **be: object) -> ClientProcess:
        return start_program(
            program, "member", group=topic, topic=topic, commit_on_revoke=True, **be
        )

    return start


def shared(members: Sequence[ClientProcess]) -> None:
    """Wait until each partition has exactly one owner, and nobody has more than a fair share."""

    def is_shared() -> bool:
        owned = [member.owned for member in members]
        together = sorted(number for each in owned for number in each)
        smallest = PARTITIONS // len(members)
        return together == list(range(PARTITIONS)) and min(map(len, owned)) >= smallest

    try:
        wait_until(is_shared, seconds_max=REBALANCE_SECONDS_MAX, what="each partition has an owner")
    except Exception as failure:
        words = "\n".join(f"{m.owned} {m.last_words()}" for m in members)
        raise AssertionError(f"{failure}\n{words}") from None


def all_read(feed: Feed, *members: ClientProcess) -> None:
    """Wait until every record that was sent has been read by some member."""
    wait_until(
        lambda: {value for member in members for value in member.values} >= set(feed.sent),
        seconds_max=REBALANCE_SECONDS_MAX,
        what=f"{len(feed.sent)} records are read",
    )


def committed(cluster: Cluster, topic: str) -> list[int]:
    reader = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": topic})
    try:
        wanted = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        return [found.offset for found in reader.committed(wanted, timeout=20)]
    finally:
        reader.close()


def join_share_and_leave(
    feed: Feed, join: Callable[..., ClientProcess], programs: Sequence[Program], **be: object
) -> None:
    """Members come one by one and the second goes: each record is read by one member, once."""
    members: list[ClientProcess] = []
    for program in programs:
        members.append(join(program, **be))
        shared(members)
        feed.send(4)
        all_read(feed, *members)
    members[1].leave()
    shared([member for member in members if member is not members[1]])
    feed.send(4)
    all_read(feed, *members)
    read = [value for member in members for value in member.values]
    assert sorted(read, key=int) == feed.sent


def test_each_record_is_read_once_while_members_join_and_leave_cooperatively_if_they_can(
    program: Program, feed: Feed, join: Callable[..., ClientProcess]
):
    is_able = ProgramAbility.COOPERATIVE in program.abilities
    join_share_and_leave(feed, join, [program] * 3, assignor="cooperative" if is_able else "range")


def test_members_of_all_clients_share_one_group_by_the_range_assignor(
    feed: Feed, join: Callable[..., ClientProcess]
):
    join_share_and_leave(feed, join, PROGRAMS)


def test_members_of_all_clients_that_have_it_share_a_group_of_the_new_protocol(
    feed: Feed, join: Callable[..., ClientProcess]
):
    able = [p for p in PROGRAMS if ProgramAbility.CONSUMER_PROTOCOL in p.abilities]
    join_share_and_leave(feed, join, able, group_protocol="consumer")


def test_who_is_killed_or_paused_past_its_session_is_replaced_and_its_late_commit_moves_nothing(
    program: Program, cluster: Cluster, topic: str, feed: Feed, join: Callable[..., ClientProcess]
):
    members = [join(program), join(program), join(program)]
    shared(members)
    feed.send(5)
    all_read(feed, *members)
    for member in members:
        assert member.commit() == 0
    stays, killed, paused = members
    late = dict.fromkeys(paused.owned, 1)
    paused.pause()
    killed.kill()
    feed.send(5)
    told_before = len(paused.events)
    paused.tell("commit", offsets=late)
    shared([stays])
    all_read(feed, stays, killed, paused)
    assert stays.commit() == 0
    assert committed(cluster, topic) == [10] * PARTITIONS
    paused.resume()
    assert paused.wait_for("committed", after=told_before)["error"] != 0
    assert committed(cluster, topic) == [10] * PARTITIONS
    shared([stays, paused])
    assert len(stays.values) == len(set(stays.values))


def test_a_static_member_that_comes_back_in_time_takes_its_partitions_and_nobody_else_notices(
    program: Program, feed: Feed, join: Callable[..., ClientProcess]
):
    in_time = {"session_timeout_ms": 60_000}
    stays = join(program, instance_id="stays", **in_time)
    shared([stays])
    killed = join(program, instance_id="killed", **in_time)
    shared([stays, killed])
    feed.send(2)
    all_read(feed, stays, killed)
    assert killed.commit() == 0
    events = [event for event in stays.events if event["event"] == "owned"]
    killed.kill()
    back = join(program, instance_id="killed", **in_time)
    shared([stays, back])
    assert back.owned == killed.owned
    assert events == [event for event in stays.events if event["event"] == "owned"]
    feed.send(2)
    all_read(feed, stays, killed, back)
    read = [value for member in (stays, killed, back) for value in member.values]
    assert sorted(read, key=int) == feed.sent
