"""aiokafka as a member of a group, a transactional producer, or a worker between two topics."""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import CommitFailedError, KafkaError, ProducerFenced
from tests.compat.programs.lines import (
    POLL_SECONDS,
    WORKER_RECORDS_MAX,
    Command,
    Holdings,
    config,
    listen,
    offsets_of,
    tell,
    tell_committed,
    transformed,
)

POLL_MS = int(POLL_SECONDS * 1000)
UNKNOWN_MEMBER_ID = 25
PRODUCER_FENCED = 90


def code_of(refused: KafkaError) -> int:
    if isinstance(refused, CommitFailedError):
        # The library's own error for a member that is out of its group.
        return UNKNOWN_MEMBER_ID
    if isinstance(refused, ProducerFenced):
        return PRODUCER_FENCED
    return getattr(refused, "errno", -1)


async def outcome(call: Awaitable[Any]) -> int:
    try:
        await call
    except KafkaError as refused:
        return code_of(refused)
    return 0


def commands() -> "asyncio.Queue[Command]":
    waiting: asyncio.Queue[Command] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    listen(lambda command: loop.call_soon_threadsafe(waiting.put_nowait, command))
    return waiting


def to_commit(topic: str, offsets: Mapping[int, int]) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, partition): offset for partition, offset in offsets.items()}


def consumer_of(given: Mapping[str, Any]) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        bootstrap_servers=given["bootstrap"],
        group_id=given["group"],
        group_instance_id=given.get("instance_id"),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level=given.get("isolation", "read_uncommitted"),
        fetch_max_wait_ms=100,
        session_timeout_ms=given["session_timeout_ms"],
        heartbeat_interval_ms=given["heartbeat_interval_ms"],
        partition_assignment_strategy=(RangePartitionAssignor,),
    )


class Member(ConsumerRebalanceListener):
    """A consumer of one topic, until it is told to leave."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._topic: str = given["topic"]
        self._commits_on_revoke: bool = given.get("commit_on_revoke", False)
        self._holdings = Holdings()
        self._consumer = consumer_of(given)

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._holdings.assigned(where.partition for where in assigned)

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        numbers = [where.partition for where in revoked]
        if self._commits_on_revoke:
            await self._commit(self._holdings.positions_of(numbers))
        self._holdings.gone(numbers)

    async def _commit(self, offsets: Mapping[int, int]) -> None:
        if offsets:
            wanted = to_commit(self._topic, offsets)
            tell_committed(offsets, await outcome(self._consumer.commit(wanted)))

    async def _read(self) -> None:
        while True:
            polled = await self._consumer.getmany(timeout_ms=POLL_MS)
            self._holdings.consumed(
                (record.partition, record.offset, record.value or b"")
                for records in polled.values()
                for record in records
            )

    async def run(self) -> None:
        waiting = commands()
        self._consumer.subscribe([self._topic], listener=self)
        await self._consumer.start()
        reading = asyncio.create_task(self._read())
        while (command := await waiting.get())["do"] != "leave":
            await self._commit(offsets_of(command, self._holdings))
        reading.cancel()
        if self._commits_on_revoke:
            # This client does not tell its listener that it leaves.
            await self._commit(self._holdings.positions_of(self._holdings.owned))
        await self._consumer.stop()
        tell("left")


def producer_of(given: Mapping[str, Any]) -> AIOKafkaProducer:
    return AIOKafkaProducer(
        bootstrap_servers=given["bootstrap"],
        transactional_id=given["transactional_id"],
        transaction_timeout_ms=given["transaction_timeout_ms"],
    )


class TransactionalProducer:
    """Does what it is told, one call of the library at a time."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._producer = producer_of(given)

    async def run(self) -> None:
        waiting = commands()
        while (command := await waiting.get())["do"] != "leave":
            tell("done", error=await outcome(self._do(command)))
        tell("left")

    async def _do(self, command: Command) -> None:
        producer = self._producer
        match command:
            case {"do": "init"}:
                await producer.start()
            case {"do": "begin"}:
                await producer.begin_transaction()
            case {"do": "send", "topic": topic, "records": records}:
                sent = [
                    await producer.send(topic, value=value.encode(), partition=partition)
                    for partition, value in records
                ]
                await asyncio.gather(*sent)
            case {"do": "send_offsets", "topic": topic, "group": group, "offsets": offsets}:
                wanted = to_commit(topic, {int(p): offset for p, offset in offsets.items()})
                await producer.send_offsets_to_transaction(wanted, group)
            case {"do": "commit"}:
                await producer.commit_transaction()
            case {"do": "abort"}:
                await producer.abort_transaction()


class BetweenTransactions(ConsumerRebalanceListener):
    """A rebalance waits for the transaction under way.

    After it the consumer begins at the committed offsets, and aiokafka asks for them as before
    KIP-447: it is not told that a transaction, its own for example, is about to move them.
    """

    def __init__(self) -> None:
        self.turn = asyncio.Lock()

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        del revoked
        async with self.turn:
            pass

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Nothing was kept of before."""


async def work(given: Mapping[str, Any]) -> None:
    """From one topic to another, exactly once, until killed or told to leave."""
    waiting = commands()
    producer = producer_of(given)
    await producer.start()
    consumer = consumer_of({**given, "isolation": "read_committed"})
    listener = BetweenTransactions()
    consumer.subscribe([given["topic"]], listener=listener)
    await consumer.start()
    tell("ready")
    while waiting.empty():
        async with listener.turn:
            polled = await consumer.getmany(timeout_ms=POLL_MS, max_records=WORKER_RECORDS_MAX)
            records = [record for found in polled.values() for record in found]
            if records:
                await work_once(given, producer, consumer, records)
        await asyncio.sleep(0)
    await consumer.stop()
    await producer.stop()
    tell("left")


async def work_once(
    given: Mapping[str, Any],
    producer: AIOKafkaProducer,
    consumer: AIOKafkaConsumer,
    records: list[Any],
) -> None:
    await producer.begin_transaction()
    tell("begun")
    try:
        for record in records:
            value = transformed(record.value)
            await producer.send(given["output"], value=value, partition=record.partition)
        tell("produced")
        positions = {record.partition: record.offset + 1 for record in records}
        offsets = to_commit(given["topic"], positions)
        await producer.send_offsets_to_transaction(offsets, given["group"])
        tell("offsets_sent")
        await producer.commit_transaction()
        tell("transaction", count=len(records))
    except KafkaError as refused:
        await producer.abort_transaction()
        tell("aborted", error=code_of(refused), text=repr(refused))
        await rewind(consumer, records)


async def rewind(consumer: AIOKafkaConsumer, records: list[Any]) -> None:
    """What was aborted is read again."""
    first: dict[TopicPartition, int] = {}
    for record in records:
        first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
    for where, offset in first.items():
        if where in consumer.assignment():
            consumer.seek(where, offset)


async def main() -> None:
    given = config()
    match given["role"]:
        case "member":
            await Member(given).run()
        case "producer":
            await TransactionalProducer(given).run()
        case _:
            await work(given)


if __name__ == "__main__":
    asyncio.run(main())
