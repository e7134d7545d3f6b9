"""Transactions of five clients: commit, abort, fencing, timeout, and offsets of a group."""

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.compat.conftest import StartProgram
from tests.peers.holdfast import HoldfastBroker
from tests.peers.kafka import KafkaBroker
from tests.peers.process import PeerFailed
from tests.support.client_process import ClientProcess, Program, ProgramAbility

Cluster = KafkaBroker | HoldfastBroker
PARTITIONS = 3
READER_SECONDS_MAX = 30.0
READ_SECONDS_MAX = 60.0
INVALID_PRODUCER_EPOCH = 47
PRODUCER_FENCED = 90
FENCED = (INVALID_PRODUCER_EPOCH, PRODUCER_FENCED)


@pytest.fixture
def topic(partitioned_topic: Callable[[int], str]) -> str:
    return partitioned_topic(PARTITIONS)


@pytest.fixture
def new_producer(start_program: StartProgram, topic: str) -> Callable[..., ClientProcess]:
    def start(program: Program, **be: object) -> ClientProcess:
        return start_program(program, "producer", **{"transactional_id": topic, **be})

    return start


@pytest.fixture
def reader(program: Program, start_program: StartProgram, topic: str) -> ClientProcess:
    """The same client, as a reader of committed records.

    A kafka-python whose first metadata lacked the topic may assign itself nothing for a minute:
    then it is started again, in another group.
    """
    for tries in range(3):
        reader = start_program(
            program,
            "member",
            group=f"readers-{topic}-{tries}",
            topic=topic,
            isolation="read_committed",
        )
        try:
            reader.wait_until(
                lambda reader=reader: bool(reader.owned),
                seconds_max=READER_SECONDS_MAX,
                what="the reader owns partitions",
            )
            return reader
        except PeerFailed:
            reader.kill()
    raise PeerFailed("no reader was given partitions")


def values(word: str) -> list[str]:
    return [f"{word}-{partition}" for partition in range(PARTITIONS)]


def send(producer: ClientProcess, topic: str, word: str) -> int:
    """One record to each partition; the error code of the first that was refused."""
    records = [[partition, value] for partition, value in enumerate(values(word))]
    return producer.ask("send", topic=topic, records=records)


def has_read(reader: ClientProcess, *words: str) -> None:
    """Wait until the reader has come this far, with nothing else on the way."""
    expected = sorted(value for word in words for value in values(word))
    reader.wait_until(
        lambda: len(reader.values) >= len(expected),
        seconds_max=READ_SECONDS_MAX,
        what=f"{words} are read",
    )
    assert sorted(reader.values) == expected


def committed_offset(cluster: Cluster, topic: str, group: str) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    try:
        return consumer.committed([TopicPartition(topic, 0)], timeout=20)[0].offset
    finally:
        consumer.close()


def test_what_is_committed_is_read_and_what_is_aborted_is_not(
    program: Program, topic: str, new_producer: Callable[..., ClientProcess], reader: ClientProcess
):
    producer = new_producer(program)
    assert producer.ask("init") == 0
    for word, end in (("first", "commit"), ("second", "abort"), ("third", "commit")):
        assert producer.ask("begin") == 0
        assert send(producer, topic, word) == 0
        assert producer.ask(end) == 0
    has_read(reader, "first", "third")


@pytest.mark.needs(ProgramAbility.OFFSETS_OF_ANY_GROUP)
def test_offsets_of_a_group_are_committed_with_their_transaction(
    program: Program, cluster: Cluster, topic: str, new_producer: Callable[..., ClientProcess]
):
    producer = new_producer(program)
    assert producer.ask("init") == 0
    seen: list[int] = []
    for offset, end in ((1, "abort"), (2, "commit")):
        assert producer.ask("begin") == 0
        assert send(producer, topic, end) == 0
        offsets = {"0": offset}
        assert producer.ask("send_offsets", topic=topic, group=topic, offsets=offsets) == 0
        assert producer.ask(end) == 0
        seen.append(committed_offset(cluster, topic, topic))
    assert seen[0] < 0
    assert seen[1] == 2


def test_a_second_producer_with_the_same_id_ends_the_transaction_of_the_first_and_fences_it(
    program: Program, topic: str, new_producer: Callable[..., ClientProcess], reader: ClientProcess
):
    first, second = new_producer(program), new_producer(program)
    assert first.ask("init") == 0
    assert first.ask("begin") == 0
    assert send(first, topic, "first") == 0
    assert second.ask("init") == 0
    assert second.ask("begin") == 0
    assert send(second, topic, "second") == 0
    assert second.ask("commit") == 0
    assert first.ask("commit") in FENCED
    has_read(reader, "second")


def test_a_transaction_that_is_open_for_too_long_is_aborted_and_its_producer_cannot_commit(
    program: Program, topic: str, new_producer: Callable[..., ClientProcess], reader: ClientProcess
):
    slow = new_producer(program, transaction_timeout_ms=4_000)
    other = new_producer(program, transactional_id=f"other-{topic}")
    assert slow.ask("init") == 0
    assert slow.ask("begin") == 0
    assert send(slow, topic, "slow") == 0
    assert other.ask("init") == 0
    assert other.ask("begin") == 0
    assert send(other, topic, "other") == 0
    assert other.ask("commit") == 0
    has_read(reader, "other")
    assert slow.ask("commit") != 0
