"""Produce lines as records, and count each record only when the broker has acknowledged it.

Owns the choice of the partition, the record batches, and their outcome. Must never count a record
that was not acknowledged: the error names the lines that are not in the topic.
"""

import asyncio
import contextlib
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.cli.asking import find_topic
from holdfast.cli.records.line_input import LineInput
from holdfast.cli.records.record_lines import Draft, Headers, parse_json, parse_text
from holdfast.client.cluster import Cluster
from holdfast.client.partitioner import partition_of_key
from holdfast.client.produce import IdempotentProducer
from holdfast.client.refusals import RequestRefused
from holdfast.client.transactions import ClientTransaction, begin_transaction
from holdfast.environment import Environment
from holdfast.errors import CallError, ConfigurationError, HoldfastError, family_of
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.records.compression import Codec
from holdfast.records.record import Record, encode_batch

BATCH_BYTES = 512 * 1024
"""The size of a record batch: below the default of message.max.bytes, which brokers enforce."""
TRANSACTION_MS_MAX = 900_000
"""The longest transaction timeout that a broker allows by default: Kafka's default of
transaction.max.timeout.ms."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)

Numbered = tuple[int, Record]
"""The number of a line, and its record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceOptions:
    """The parsed options of `holdfast topic produce`."""

    topic: str
    as_json: bool
    separator: bytes | None
    key: bytes | None
    headers: Headers
    partition: int | None
    acks: int
    codec: Codec
    transactional_id: str | None


@dataclass(slots=True, kw_only=True)
class PartitionSent:
    """Records acknowledged in one partition. The offsets are -1 if they are not known."""

    partition: int
    records: int = 0
    first_offset: int = -1
    last_offset: int = -1


@dataclass(slots=True, kw_only=True)
class Sent:
    """All records that were acknowledged."""

    topic: str
    partitions: dict[int, PartitionSent] = field(default_factory=dict[int, PartitionSent])
    is_interrupted: bool = False

    @property
    def records(self) -> int:
        return sum(part.records for part in self.partitions.values())

    def add(self, partition: int, records: int, base_offset: int) -> None:
        part = self.partitions.setdefault(partition, PartitionSent(partition=partition))
        part.records += records
        if base_offset >= 0:
            part.first_offset = base_offset if part.first_offset < 0 else part.first_offset
            part.last_offset = base_offset + records - 1


class BatchWriter(Protocol):
    """A way to write batches of records to a topic."""

    async def write(self, partition: int, records: Sequence[Record]) -> int:
        """Write the records. Return the offset of the first, or -1 if it is not known."""
        ...

    async def finish(self, *, is_interrupted: bool) -> None:
        """Complete the output after the end of the input."""
        ...

    async def give_up(self) -> None:
        """Undo what can be undone, after a record could not be written."""
        ...


class IdempotentWriter:
    """An idempotent writer: each batch counts when acknowledged, and is in the log exactly once."""

    def __init__(self, cluster: Cluster, wanted: ProduceOptions) -> None:
        self._topic = wanted.topic
        self._producer = IdempotentProducer(cluster, codec=wanted.codec, acks=wanted.acks)

    async def write(self, partition: int, records: Sequence[Record]) -> int:
        return (await self._producer.send(self._topic, partition, records)).base_offset

    async def finish(self, *, is_interrupted: bool) -> None:
        """Do nothing: every batch was acknowledged."""

    async def give_up(self) -> None:
        """Do nothing: acknowledged records cannot be taken back."""


class TransactionalWriter:
    """A writer in one transaction: all batches count when it is committed."""

    def __init__(self, transaction: ClientTransaction, wanted: ProduceOptions) -> None:
        self._transaction = transaction
        self._wanted = wanted
        self._known: set[int] = set()

    async def write(self, partition: int, records: Sequence[Record]) -> int:
        where = TopicPartition(self._wanted.topic, partition)
        if partition not in self._known:
            await self._transaction.add_partitions([where])
            self._known.add(partition)
        await self._transaction.produce(
            where, [bytearray(encode_batch(records, codec=self._wanted.codec))]
        )
        return -1

    async def finish(self, *, is_interrupted: bool) -> None:
        if not is_interrupted:
            await self._transaction.commit()
            return
        await self.give_up()
        raise CallError("interrupted: the transaction is aborted, and nothing was produced")

    async def give_up(self) -> None:
        """Abort the transaction. If that fails, too, the broker aborts it when it times out."""
        with contextlib.suppress(HoldfastError):
            await self._transaction.abort()


class _Placement:
    """The choice of a partition for each record."""

    def __init__(self, wanted: ProduceOptions, partitions: Sequence[int], first: int) -> None:
        self._wanted = wanted
        self._partitions = partitions
        self._sticky = first

    def next_batch(self) -> None:
        """Send records without a key to the next partition from here on."""
        self._sticky += 1

    def partition(self, draft: Draft) -> int:
        asked = self._wanted.partition if self._wanted.partition is not None else draft.partition
        if asked is not None:
            if asked not in self._partitions:
                last = max(self._partitions)
                raise ConfigurationError(
                    f"topic {self._wanted.topic!r} has no partition {asked}: there are 0 to {last}"
                )
            return asked
        if draft.key is not None:
            return partition_of_key(draft.key, len(self._partitions))
        return self._partitions[self._sticky % len(self._partitions)]


async def produce_lines(cluster: Cluster, wanted: ProduceOptions, descriptor: int) -> Sent:
    remedy = f"create it with `holdfast topic create {wanted.topic}`"
    topic = await find_topic(cluster, wanted.topic, remedy=remedy)
    partitions = sorted(topic.leaders)
    first = cluster.environment.random().randrange(len(partitions))
    placement = _Placement(wanted, partitions, first)
    writer: BatchWriter = IdempotentWriter(cluster, wanted)
    if wanted.transactional_id is not None:
        transaction = await begin_transaction(
            cluster, wanted.transactional_id, timeout_ms=TRANSACTION_MS_MAX
        )
        writer = TransactionalWriter(transaction, wanted)
    sent = Sent(topic=wanted.topic)
    source = LineInput(descriptor)

    def interrupt() -> None:
        sent.is_interrupted = True
        source.end()
        for number in SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, interrupt)
    try:
        await _send_all(source, wanted, placement, _Sender(writer, sent), cluster.environment)
    except HoldfastError as error:
        await writer.give_up()
        raise family_of(error)(f"{error}{_before(sent, wanted)}") from error
    except OSError as error:
        await writer.give_up()
        problem = f"the input cannot be read: {error}"
        raise CallError(f"{problem}{_before(sent, wanted)}") from error
    await writer.finish(is_interrupted=sent.is_interrupted)
    return sent


def _before(sent: Sent, wanted: ProduceOptions) -> str:
    if wanted.transactional_id is not None:
        return " (the transaction is aborted, and nothing was produced)"
    records = "1 record is" if sent.records == 1 else f"{sent.records} records are"
    return f" ({records} in the topic)"


async def _send_all(
    source: LineInput,
    wanted: ProduceOptions,
    placement: _Placement,
    sender: "_Sender",
    environment: Environment,
) -> None:
    """Send all lines. If one is not a valid record, send those before it, then raise."""
    number = 0
    while (lines := await source.lines()) is not None:
        placement.next_batch()
        by_partition: dict[int, list[Numbered]] = {}
        now_ms = environment.now_ms()
        problem: HoldfastError | None = None
        for line in lines:
            number += 1
            if wanted.as_json and not line.strip():
                continue
            try:
                draft = _draft(line, wanted)
                row = by_partition.setdefault(placement.partition(draft), [])
            except ConfigurationError as wrong:
                problem = ConfigurationError(f"line {number}: {wrong}")
                break
            timestamp = now_ms if draft.timestamp is None else draft.timestamp
            row.append((number, Record(0, timestamp, draft.key, draft.value, draft.headers)))
        results = await asyncio.gather(
            *(sender.send(partition, rows) for partition, rows in by_partition.items()),
            return_exceptions=True,
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
        if problem is not None:
            raise problem


def _draft(line: bytes, wanted: ProduceOptions) -> Draft:
    draft = parse_json(line) if wanted.as_json else parse_text(line, wanted.separator)
    key = wanted.key if draft.key is None else draft.key
    return draft._replace(key=key, headers=wanted.headers + draft.headers)


class _Sender:
    """A sender that counts acknowledged records. Its errors name the lines that failed."""

    def __init__(self, writer: BatchWriter, sent: Sent) -> None:
        self._writer = writer
        self._sent = sent

    async def send(self, partition: int, rows: Sequence[Numbered]) -> None:
        for batch in _batches(rows):
            try:
                offset = await self._writer.write(partition, [record for _, record in batch])
            except HoldfastError as error:
                first, last = batch[0][0], batch[-1][0]
                lines = f"line {first}" if first == last else f"lines {first} to {last}"
                raise family_of(error)(f"{lines}: {error}{_remedy(error)}") from error
            self._sent.add(partition, len(batch), offset)


def _remedy(error: HoldfastError) -> str:
    if isinstance(error, RequestRefused) and error.code == ErrorCode.MESSAGE_TOO_LARGE:
        return "; raise max.message.bytes of the topic, or write smaller records"
    return ""


def _batches(rows: Sequence[Numbered]) -> list[list[Numbered]]:
    """Cut rows into batches that a broker accepts. A larger record gets a batch for itself."""
    found: list[list[Numbered]] = [[]]
    size = 0
    for row in rows:
        record = row[1]
        bytes_more = len(record.key or b"") + len(record.value or b"") + 64
        if found[-1] and size + bytes_more > BATCH_BYTES:
            found.append([])
            size = 0
        found[-1].append(row)
        size += bytes_more
    return [batch for batch in found if batch]
