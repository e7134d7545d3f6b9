"""librdkafka as a member of a group, a transactional producer, or a worker between two topics."""

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
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
ASSIGNORS = {"range": "range", "cooperative": "cooperative-sticky"}
# The library's own code for a producer that another one has fenced.
LOCAL_CODES = {KafkaError._FENCED: KafkaError.PRODUCER_FENCED}


def code_of(refused: KafkaException) -> int:
    code = refused.args[0].code()
    return LOCAL_CODES.get(code, code)


def outcome(call: Callable[[], Any]) -> int:
    try:
        call()
    except KafkaException as refused:
        return code_of(refused)
    return 0


def group_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": given["bootstrap"],
        "group.id": given["group"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "isolation.level": given.get("isolation", "read_uncommitted"),
        "fetch.wait.max.ms": 100,
        "reconnect.backoff.max.ms": 500,
    }
    if given.get("instance_id"):
        settings["group.instance.id"] = given["instance_id"]
    if given.get("group_protocol") == "consumer":
        return settings | {"group.protocol": "consumer"}
    return settings | {
        "session.timeout.ms": given["session_timeout_ms"],
        "heartbeat.interval.ms": given["heartbeat_interval_ms"],
        "partition.assignment.strategy": ASSIGNORS[given.get("assignor", "range")],
    }


class Member:
    """A consumer of one topic, until it is told to leave."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._topic: str = given["topic"]
        self._commits_on_revoke: bool = given.get("commit_on_revoke", False)
        self._holdings = Holdings()
        self._consumer = Consumer(group_settings(given))
        self._consumer.subscribe(
            [self._topic],
            on_assign=lambda _, partitions: self._holdings.assigned(_numbers(partitions)),
            on_revoke=self._on_revoke,
            on_lost=lambda _, partitions: self._holdings.gone(_numbers(partitions), lost=True),
        )

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        numbers = _numbers(partitions)
        if self._commits_on_revoke:
            self._commit(self._holdings.positions_of(numbers))
        self._holdings.gone(numbers)

    def _commit(self, offsets: Mapping[int, int]) -> None:
        if not offsets:
            return
        wanted = [TopicPartition(self._topic, p, offset) for p, offset in offsets.items()]

        def commit() -> None:
            for done in self._consumer.commit(offsets=wanted, asynchronous=False) or ():
                if done.error is not None:
                    raise KafkaException(done.error)

        tell_committed(offsets, outcome(commit))

    def run(self) -> None:
        waiting = commands()
        while True:
            match next_command(waiting):
                case {"do": "leave"}:
                    self._consumer.close()
                    tell("left")
                    return
                case {"do": "commit"} as command:
                    self._commit(offsets_of(command, self._holdings))
                case _:
                    messages = self._consumer.consume(100, timeout=POLL_SECONDS)
                    self._holdings.consumed(_records(messages))


def _numbers(partitions: list[TopicPartition]) -> list[int]:
    return [where.partition for where in partitions]


def _records(messages: list[Message]) -> list[tuple[int, int, bytes]]:
    """What came; an error that is told here is one that the library gets over by itself."""
    return [(m.partition(), m.offset(), m.value()) for m in messages if m.error() is None]  # type: ignore[misc]


def producer_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "bootstrap.servers": given["bootstrap"],
        "transactional.id": given["transactional_id"],
        "transaction.timeout.ms": given["transaction_timeout_ms"],
        # Not above the transaction's own time.
        "message.timeout.ms": min(given["transaction_timeout_ms"], 30_000),
        "linger.ms": 0,
        # With a new bootstrap it waits for ever for a group coordinator that it has dropped
        # (librdkafka issue 5511).
        "metadata.recovery.strategy": "none",
        "reconnect.backoff.max.ms": 500,
    }


class TransactionalProducer:
    """Does what it is told, one call of the library at a time."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._bootstrap: str = given["bootstrap"]
        self._producer = Producer(producer_settings(given))

    def run(self) -> None:
        waiting = commands()
        while (command := waiting.get())["do"] != "leave":
            tell("done", error=outcome(lambda asked=command: self._do(asked)))
        tell("left")

    def _do(self, command: Command) -> None:
        producer = self._producer
        match command:
            case {"do": "init"}:
                producer.init_transactions(CALL_SECONDS_MAX)
            case {"do": "begin"}:
                producer.begin_transaction()
            case {"do": "send", "topic": topic, "records": records}:
                self._send(topic, records)
            case {"do": "send_offsets", "topic": topic, "group": group, "offsets": offsets}:
                consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
                wanted = [TopicPartition(topic, int(p), offset) for p, offset in offsets.items()]
                metadata = consumer.consumer_group_metadata()
                producer.send_offsets_to_transaction(wanted, metadata, CALL_SECONDS_MAX)
                consumer.close()
            case {"do": "commit"}:
                producer.commit_transaction(CALL_SECONDS_MAX)
            case {"do": "abort"}:
                producer.abort_transaction(CALL_SECONDS_MAX)

    def _send(self, topic: str, records: list[tuple[int, str]]) -> None:
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Any) -> None:
            if error is not None:
                errors.append(error)

        for partition, value in records:
            self._producer.produce(
                topic, value=value.encode(), partition=partition, on_delivery=delivered
            )
        self._producer.flush(CALL_SECONDS_MAX)
        if errors:
            raise KafkaException(errors[0])


def work(given: Mapping[str, Any]) -> None:
    """From one topic to another, exactly once, until killed or told to leave."""
    waiting = commands()
    producer = Producer(producer_settings(given))
    producer.init_transactions(CALL_SECONDS_MAX)
    consumer = Consumer(group_settings({**given, "isolation": "read_committed"}))
    consumer.subscribe([given["topic"]])
    tell("ready")
    while next_command(waiting) is None:
        messages = consumer.consume(WORKER_RECORDS_MAX, timeout=POLL_SECONDS)
        for error in filter(None, [message.error() for message in messages]):
            if error.fatal():
                raise KafkaException(error)
        messages = [message for message in messages if message.error() is None]
        if messages:
            work_once(given["output"], producer, consumer, messages)
    consumer.close()
    tell("left")


def work_once(output: str, producer: Producer, consumer: Consumer, messages: list[Message]) -> None:
    producer.begin_transaction()
    tell("begun")
    positions: dict[tuple[str, int], int] = {}
    for message in messages:
        value = transformed(message.value() or b"")
        producer.produce(output, value=value, partition=message.partition())
        positions[message.topic() or "", message.partition() or 0] = (message.offset() or 0) + 1
    tell("produced")
    offsets = [TopicPartition(topic, p, offset) for (topic, p), offset in positions.items()]
    try:
        metadata = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction(offsets, metadata, CALL_SECONDS_MAX)
        tell("offsets_sent")
        producer.commit_transaction(CALL_SECONDS_MAX)
        tell("transaction", count=len(messages))
    except KafkaException as refused:
        if not refused.args[0].txn_requires_abort():
            raise
        producer.abort_transaction(CALL_SECONDS_MAX)
        tell("aborted", error=code_of(refused))
        rewind(consumer, messages)


def rewind(consumer: Consumer, messages: list[Message]) -> None:
    """What was aborted is read again."""
    first: dict[tuple[str, int], int] = {}
    for message in messages:
        first.setdefault((message.topic() or "", message.partition() or 0), message.offset() or 0)
    for (topic, partition), offset in first.items():
        try:
            consumer.seek(TopicPartition(topic, partition, offset))
        except KafkaException as refused:
            # Not assigned now: whoever is assigned it begins at the committed offset.
            tell("not_rewound", error=code_of(refused))


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
