"""An idempotent producer for workloads that must know the outcome of each write.

Owns one producer id and a sequence for each partition, with one batch in flight per partition. A
write has one of three outcomes: an offset (it is in the log, once), Refused (it is not in the log),
OutcomeUnknown (it may be). After an unknown outcome the sequences are useless, so the next batch
gets a new producer id. Must never report a write as refused if an earlier try may have appended it.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.client.cluster import Cluster, PartitionLeader
from holdfast.client.connection import BrokerConnection
from holdfast.client.refusals import (
    LEAVES_A_WRITE_OPEN,
    BrokerUnavailable,
    OutcomeUnknown,
    RefusedForNow,
    RequestRefused,
    raise_for,
)
from holdfast.errors import RetryError
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from holdfast.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from holdfast.records.batch import SEQUENCES
from holdfast.records.compression import Codec
from holdfast.records.record import Record, encode_batch

ACKS_ALL = -1
ACKS_LEADER = 1
UNKNOWN_OFFSET = -1
NO_TRANSACTION_TIMEOUT_MS = 2**31 - 1
PRODUCER_IS_LOST = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.PRODUCER_FENCED,
    }
)


class AppendedBatch(NamedTuple):
    """Where a batch was appended; -1 if the broker knew the batch, but no longer its offset."""

    base_offset: int
    log_append_time_ms: int
    tries: int


class _Identity:
    """A producer id with its epoch, and the next sequence of each partition."""

    def __init__(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.sequences: dict[tuple[str, int], int] = {}


class IdempotentProducer:
    """A producer for many tasks at once. It sends the batches of one partition one by one."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        codec: Codec = Codec.NONE,
        deadline_ms: int | None = None,
        acks: int = ACKS_ALL,
    ) -> None:
        self._cluster = cluster
        self._acks = acks
        self._codec = codec
        self._deadline_ms = deadline_ms
        self._identity: _Identity | None = None
        self._identifying = asyncio.Lock()
        self._turns: dict[tuple[str, int], asyncio.Lock] = {}

    @property
    def producer_id(self) -> int:
        """The producer id of the next batch; -1 if the producer must request one first."""
        return -1 if self._identity is None else self._identity.producer_id

    async def send(self, topic: str, partition: int, records: Sequence[Record]) -> AppendedBatch:
        """Send the records as one batch, with the same sequence until its outcome is known."""
        where = (topic, partition)
        async with self._turns.setdefault(where, asyncio.Lock()):
            identity = await self._identified()
            sequence = identity.sequences.get(where, 0)
            batch = encode_batch(
                records,
                codec=self._codec,
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
                base_sequence=sequence,
            )
            write = _Write(self._cluster, topic, partition, batch, self._acks)
            try:
                produced = await write.carry_out(self._deadline_ms)
            except BaseException as error:
                if self._identity is identity and not _leaves_the_sequence(error):
                    self._identity = None
                raise
            identity.sequences[where] = (sequence + len(records)) % SEQUENCES
            return produced

    async def _identified(self) -> _Identity:
        async with self._identifying:
            if self._identity is None:
                self._identity = await self._cluster.patiently(
                    self._init_producer_id, "InitProducerId", deadline_ms=self._deadline_ms
                )
            return self._identity

    async def _init_producer_id(self) -> _Identity:
        connection = await self._cluster.any_connection()
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=NO_TRANSACTION_TIMEOUT_MS
        )
        response = await connection.request(request, InitProducerIdResponse)
        raise_for(response.error_code, f"InitProducerId from {connection.address}")
        return _Identity(response.producer_id, response.producer_epoch)


def _leaves_the_sequence(error: BaseException) -> bool:
    """True if the broker surely still expects the same sequence of the same producer id."""
    return isinstance(error, RequestRefused) and error.code not in PRODUCER_IS_LOST


class _Write:
    """One batch being sent: how often it was tried, and whether a try may have appended it."""

    def __init__(
        self, cluster: Cluster, topic: str, partition: int, batch: bytes, acks: int
    ) -> None:
        self._cluster = cluster
        self._acks = acks
        self._topic = topic
        self._partition = partition
        self._batch = memoryview(batch)
        self._tries = 0
        self._may_have_landed = False

    async def carry_out(self, deadline_ms: int | None) -> AppendedBatch:
        what = f"produce to {self._topic}-{self._partition}"
        try:
            return await self._cluster.ask_leader(
                self._topic, self._partition, self._ask, deadline_ms=deadline_ms
            )
        except RequestRefused as error:
            if self._may_have_landed or error.code in LEAVES_A_WRITE_OPEN:
                raise OutcomeUnknown(
                    f"{what}: an earlier try may have landed, then: {error}"
                ) from error
            raise
        except RetryError as error:
            if self._may_have_landed:
                raise OutcomeUnknown(f"{what}: {error}") from error
            code = error.code if isinstance(error, RefusedForNow) else ErrorCode.NETWORK_EXCEPTION
            raise RequestRefused(code, f"{what}: never reached a log: {error}") from error

    async def _ask(self, connection: BrokerConnection, leader: PartitionLeader) -> AppendedBatch:
        data = PartitionProduceData(index=self._partition, records=self._batch)
        topic = TopicProduceData(name=self._topic, topic_id=leader.topic_id, partition_data=[data])
        request = ProduceRequest(
            acks=self._acks, timeout_ms=self._cluster.request_timeout_ms, topic_data=[topic]
        )
        self._tries += 1
        landed_before, self._may_have_landed = self._may_have_landed, True
        response = await connection.request(request, ProduceResponse)
        for row in (row for found in response.responses for row in found.partition_responses):
            if row.index != self._partition:
                continue
            if row.error_code == ErrorCode.NONE:
                return AppendedBatch(row.base_offset, row.log_append_time_ms, self._tries)
            if row.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                return AppendedBatch(UNKNOWN_OFFSET, row.log_append_time_ms, self._tries)
            self._may_have_landed = landed_before or row.error_code in LEAVES_A_WRITE_OPEN
            raise_for(
                row.error_code,
                f"produce to {self._topic}-{self._partition} at {connection.address}",
                row.error_message,
            )
        raise BrokerUnavailable(
            f"{connection.address} says nothing of {self._topic}-{self._partition}"
        )
