"""kafka-python as a member of a group, a transactional producer, or a worker between two topics."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafka import AsyncConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import CommitFailedError, KafkaError
from kafka.structs import OffsetAndMetadata
from tests.compat.programs.lines import (
    POLL_SECONDS,
    WORKER_RECORDS_MAX,
    Command,
    Holdings,
    commands,
    config,
    next_command,
    offsets_of,
    tell,
    tell_committed,
    transformed,
)

CALL_SECONDS_MAX = 30.0
POLL_MS = int(POLL_SECONDS * 1000)
ASSIGNORS = {"range": RangePartitionAssignor, "cooperative": CooperativeStickyAssignor}
UNKNOWN_MEMBER_ID = 25


def code_of(refused: BaseException) -> int:
    if isinstance(refused, CommitFailedError):
        # The library's own error for a member that is out of its group.
        return UNKNOWN_MEMBER_ID
    cause = refused.__cause__
    code = getattr(refused, "errno", None)
    if not isinstance(code, int) and cause is not None:
        return code_of(cause)
    return code if isinstance(code, int) else -1


def outcome(call: Callable[[], Any]) -> int:
    try:
        call()
    except KafkaError as refused:
        return code_of(refused)
    return 0


def to_commit(topic: str, offsets: Mapping[int, int]) -> dict[TopicPartition, OffsetAndMetadata]:
    return {
        TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1)
        for partition, offset in offsets.items()
    }


def consumer_of(given: Mapping[str, Any]) -> KafkaConsumer:
    return KafkaConsumer(
        bootstrap_servers=given["bootstrap"],
        group_id=given["group"],
        group_instance_id=given.get("instance_id"),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level=given.get("isolation", "read_uncommitted"),
        fetch_max_wait_ms=100,
        reconnect_backoff_max_ms=500,
        # The leader assigns what it knows: a topic that came just now, only with the next metadata.
        metadata_max_age_ms=1_000,
        session_timeout_ms=given["session_timeout_ms"],
        heartbeat_interval_ms=given["heartbeat_interval_ms"],
        partition_assignment_strategy=(ASSIGNORS[given.get("assignor", "range")],),
        max_poll_records=WORKER_RECORDS_MAX,
    )


class Member(AsyncConsumerRebalanceListener):
    """A consumer of one topic, until it is told to leave."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._topic: str = given["topic"]
        self._commits_on_revoke: bool = given.get("commit_on_revoke", False)
        self._holdings = Holdings()
        self._consumer = consumer_of(given)
        self._consumer.subscribe([self._topic], listener=self)

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._holdings.assigned(_numbers(assigned))

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        numbers = _numbers(revoked)
        offsets = self._holdings.positions_of(numbers)
        if self._commits_on_revoke and offsets:
            try:
                await self._consumer.commit_async(to_commit(self._topic, offsets))
                tell_committed(offsets, 0)
            except KafkaError as refused:
                tell_committed(offsets, code_of(refused))
        self._holdings.gone(numbers)

    async def on_partitions_lost(self, lost: Iterable[TopicPartition]) -> None:
        self._holdings.gone(_numbers(lost), lost=True)

    def _commit(self, offsets: Mapping[int, int]) -> None:
        if offsets:
            wanted = to_commit(self._topic, offsets)
            tell_committed(offsets, outcome(lambda: self._consumer.commit(wanted)))

    def run(self) -> None:
        waiting = commands()
        while True:
            match next_command(waiting):
                case {"do": "leave"}:
                    self._consumer.close(autocommit=False)
                    tell("left")
                    return
                case {"do": "commit"} as command:
                    self._commit(offsets_of(command, self._holdings))
                case _:
                    polled = self._consumer.poll(timeout_ms=POLL_MS)
                    self._holdings.consumed(
                        (record.partition, record.offset, record.value)
                        for records in polled.values()
                        for record in records
                    )


def _numbers(partitions: Iterable[TopicPartition]) -> list[int]:
    return [where.partition for where in partitions]


def producer_of(given: Mapping[str, Any]) -> KafkaProducer:
    return KafkaProducer(
        bootstrap_servers=given["bootstrap"],
        transactional_id=given["transactional_id"],
        transaction_timeout_ms=given["transaction_timeout_ms"],
        reconnect_backoff_max_ms=500,
    )


class TransactionalProducer:
    """Does what it is told, one call of the library at a time."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._producer = producer_of(given)

    def run(self) -> None:
        waiting = commands()
        while (command := waiting.get())["do"] != "leave":
            tell("done", error=outcome(lambda asked=command: self._do(asked)))
        self._producer.close(timeout=1)
        tell("left")

    def _do(self, command: Command) -> None:
        producer = self._producer
        match command:
            case {"do": "init"}:
                producer.init_transactions()
            case {"do": "begin"}:
                producer.begin_transaction()
            case {"do": "send", "topic": topic, "records": records}:
                sent = [
                    producer.send(topic, value=value.encode(), partition=partition)
                    for partition, value in records
                ]
                for future in sent:
                    future.get(timeout=CALL_SECONDS_MAX)
            case {"do": "send_offsets", "topic": topic, "group": group, "offsets": offsets}:
                wanted = to_commit(topic, {int(p): offset for p, offset in offsets.items()})
                producer.send_offsets_to_transaction(wanted, group)
            case {"do": "commit"}:
                producer.commit_transaction()
            case {"do": "abort"}:
                producer.abort_transaction()


def work(given: Mapping[str, Any]) -> None:
    """From one topic to another, exactly once, until killed or told to leave."""
    waiting = commands()
    producer = producer_of(given)
    producer.init_transactions()
    consumer = consumer_of({**given, "isolation": "read_committed"})
    consumer.subscribe([given["topic"]])
    tell("ready")
    while next_command(waiting) is None:
        polled = consumer.poll(timeout_ms=POLL_MS)
        records = [record for found in polled.values() for record in found]
        if records:
            work_once(given["output"], producer, consumer, records)
    consumer.close(autocommit=False)
    producer.close(timeout=1)
    tell("left")


def work_once(
    output: str, producer: KafkaProducer, consumer: KafkaConsumer, records: list[Any]
) -> None:
    producer.begin_transaction()
    tell("begun")
    try:
        for record in records:
            producer.send(output, value=transformed(record.value), partition=record.partition)
        tell("produced")
        positions = {record.partition: record.offset + 1 for record in records}
        offsets = to_commit(records[0].topic, positions)
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        tell("offsets_sent")
        producer.commit_transaction()
        tell("transaction", count=len(records))
    except KafkaError as refused:
        producer.abort_transaction()
        tell("aborted", error=code_of(refused), text=repr(refused))
        rewind(consumer, records)


def rewind(consumer: KafkaConsumer, records: list[Any]) -> None:
    """What was aborted is read again."""
    first: dict[TopicPartition, int] = {}
    for record in records:
        first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
    for where, offset in first.items():
        if where in consumer.assignment():
            consumer.seek(where, offset)


def main() -> None:
    given = config()
    match given["role"]:
        case "member":
            Member(given).run()
        case "producer":
            TransactionalProducer(given).run()
        case _:
            work(given)


if __name__ == "__main__":
    main()
