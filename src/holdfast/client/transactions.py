"""One transaction of a transactional id: produce batches, commit a group's offsets, end it.

Owns the producer id and epoch that InitProducerId gave, and the sequence of each partition. Uses
the versions before KIP-890's second part, which every broker since Kafka 2.5 serves: separate
requests add partitions and groups to the transaction. A later InitProducerId of the same id fences
this transaction. Must never report a transaction as failed if its end may have been decided: that
is OutcomeUnknown, and the next InitProducerId of the id finds what was decided.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from holdfast.client.cluster import Cluster, PartitionLeader
from holdfast.client.connection import BrokerConnection
from holdfast.client.coordinators import TRANSACTION_KEY, ask_coordinator
from holdfast.client.groups import GroupOffset
from holdfast.client.produce import ACKS_ALL
from holdfast.client.refusals import BrokerUnavailable, OutcomeUnknown, RequestRefused, raise_for
from holdfast.errors import RetryError
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.protocol.message import Message
from holdfast.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from holdfast.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from holdfast.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
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
from holdfast.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from holdfast.records.batch import SEQUENCES, parse_header
from holdfast.records.stamp import stamp_producer

R = TypeVar("R", bound=Message)

Ask = Callable[[BrokerConnection], Awaitable[None]]

NEWEST: Mapping[type[Message], int] = {
    AddPartitionsToTxnRequest: 3,
    AddOffsetsToTxnRequest: 3,
    TxnOffsetCommitRequest: 4,
    EndTxnRequest: 4,
    ProduceRequest: 11,
}
"""The last versions in which separate requests add partitions and groups to a transaction."""
IN_FLIGHT_MAX = 5
"""The number of a producer's batches that brokers remember, and recognise if sent again."""
FOLLOWS_A_FAILURE = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER})
"""Errors that a batch gets if the batch before it was not appended."""
FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})


class ClientTransaction:
    """A transaction, made by `begin_transaction` and ended once, by `commit` or `abort`."""

    def __init__(
        self, cluster: Cluster, transactional_id: str, producer_id: int, producer_epoch: int
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self._cluster = cluster
        self._sequences: dict[TopicPartition, int] = {}

    async def add_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        """Add partitions to the transaction, before anything is written to them."""
        by_topic: dict[str, list[int]] = {}
        for where in partitions:
            by_topic.setdefault(where.topic, []).append(where.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=numbers)
                for name, numbers in by_topic.items()
            ],
        )

        async def ask(connection: BrokerConnection) -> None:
            response = await _exchange(connection, request, AddPartitionsToTxnResponse)
            rows = [
                (f"{topic.name}-{row.partition_index}", row.partition_error_code)
                for topic in response.results_by_topic_v3_and_below
                for row in topic.results_by_partition
            ]
            # If one partition is refused, the others are not attempted: name the refused one.
            rows.sort(key=lambda row: row[1] == ErrorCode.OPERATION_NOT_ATTEMPTED)
            for where, code in rows:
                raise_for(code, f"add {where} to the transaction of {self.transactional_id!r}")

        if by_topic:
            await self._ask_coordinator(ask)

    async def produce(self, where: TopicPartition, batches: Sequence[bytearray]) -> None:
        """Append batches in order, each stamped in place; retry until their outcome is known.

        The first batch goes alone, because Kafka accepts any sequence from a producer that a
        partition does not know. After it, up to IN_FLIGHT_MAX are in flight at once. If one of
        these fails, all of them are sent again, one after the other: brokers recognise them by
        their sequences. Only one task may call this at a time.
        """
        done = 0
        while done < len(batches):
            size = IN_FLIGHT_MAX if where in self._sequences else 1
            window = batches[done : done + size]
            done += size
            self._stamp(where, window)
            if not await self._sent_at_once(where, window):
                for batch in window:
                    await self._cluster.ask_leader(
                        where.topic, where.partition, partial(self._send, where, batch)
                    )

    def _stamp(self, where: TopicPartition, batches: Sequence[bytearray]) -> None:
        sequence = self._sequences.get(where, 0)
        for batch in batches:
            stamp_producer(
                batch,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=sequence,
            )
            sequence = (sequence + parse_header(batch).record_count) % SEQUENCES
        self._sequences[where] = sequence

    async def _sent_at_once(self, where: TopicPartition, window: Sequence[bytearray]) -> bool:
        """Send two or more at once, in order on one connection; True if all were appended."""
        if len(window) == 1:
            return False
        try:
            leader = await self._cluster.leader(where.topic, where.partition)
            connection = await self._cluster.broker(leader.node_id)
        except RetryError:
            return False
        outcomes = await asyncio.gather(
            *(self._send(where, batch, connection, leader) for batch in window),
            return_exceptions=True,
        )
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        for error in errors:
            follows = isinstance(error, RequestRefused) and error.code in FOLLOWS_A_FAILURE
            if not isinstance(error, RetryError) and not follows:
                raise error
        return not errors

    async def _send(
        self,
        where: TopicPartition,
        batch: bytearray,
        connection: BrokerConnection,
        leader: PartitionLeader,
    ) -> None:
        data = PartitionProduceData(index=where.partition, records=memoryview(batch))
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=ACKS_ALL,
            timeout_ms=self._cluster.request_timeout_ms,
            topic_data=[
                TopicProduceData(name=where.topic, topic_id=leader.topic_id, partition_data=[data])
            ],
        )
        what = f"produce to {where.topic}-{where.partition}"
        response = await _exchange(connection, request, ProduceResponse)
        for row in (row for found in response.responses for row in found.partition_responses):
            if row.index == where.partition:
                if row.error_code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                    raise_for(row.error_code, what, row.error_message)
                return
        raise BrokerUnavailable(f"{connection.address} says nothing of: {what}")

    async def commit_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, GroupOffset]
    ) -> None:
        """Commit offsets of a group as part of the transaction."""
        joining = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            group_id=group_id,
        )

        async def join(connection: BrokerConnection) -> None:
            response = await _exchange(connection, joining, AddOffsetsToTxnResponse)
            raise_for(
                response.error_code,
                f"add group {group_id!r} to the transaction of {self.transactional_id!r}",
            )

        await self._ask_coordinator(join)
        by_topic: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for where, committed in offsets.items():
            part = TxnOffsetCommitRequestPartition(
                partition_index=where.partition,
                committed_offset=committed.offset,
                committed_metadata=committed.metadata,
            )
            by_topic.setdefault(where.topic, []).append(part)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            topics=[
                TxnOffsetCommitRequestTopic(name=name, partitions=parts)
                for name, parts in by_topic.items()
            ],
        )

        async def ask(connection: BrokerConnection) -> None:
            response = await _exchange(connection, request, TxnOffsetCommitResponse)
            for topic in response.topics:
                for row in topic.partitions:
                    where = f"{topic.name}-{row.partition_index}"
                    raise_for(row.error_code, f"commit {where} of group {group_id!r}")

        await ask_coordinator(self._cluster, group_id, ask)

    async def commit(self) -> None:
        """Commit; Refused if it was surely not committed, OutcomeUnknown if it may have been."""
        tries = 0

        async def ask(connection: BrokerConnection) -> None:
            nonlocal tries
            tries += 1
            await self._end(connection, committed=True)

        try:
            await self._ask_coordinator(ask)
        except RequestRefused as error:
            if tries > 1:
                raise OutcomeUnknown(
                    f"an earlier try may have ended the transaction, then: {error}"
                ) from error
            raise
        except RetryError as error:
            raise OutcomeUnknown(f"the transaction may have been committed: {error}") from error

    async def abort(self) -> None:
        """Abort: nothing of the transaction becomes visible."""
        await self._ask_coordinator(lambda connection: self._end(connection, committed=False))

    async def _end(self, connection: BrokerConnection, *, committed: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=committed,
        )
        response = await _exchange(connection, request, EndTxnResponse)
        how = "commit" if committed else "abort"
        raise_for(response.error_code, f"{how} the transaction of {self.transactional_id!r}")

    async def _ask_coordinator(self, ask: Ask) -> None:
        await ask_coordinator(self._cluster, self.transactional_id, ask, key_type=TRANSACTION_KEY)


async def begin_transaction(
    cluster: Cluster, transactional_id: str, *, timeout_ms: int
) -> ClientTransaction:
    """Take the id over: fence its previous user, and abort the transaction it left open."""

    async def ask(connection: BrokerConnection) -> ClientTransaction:
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        response = await connection.request(request, InitProducerIdResponse)
        raise_for(response.error_code, f"InitProducerId of {transactional_id!r}")
        return ClientTransaction(
            cluster, transactional_id, response.producer_id, response.producer_epoch
        )

    return await ask_coordinator(cluster, transactional_id, ask, key_type=TRANSACTION_KEY)


async def _exchange(connection: BrokerConnection, request: Message, answer: type[R]) -> R:
    version = min(connection.version_for(type(request)), NEWEST[type(request)])
    return await connection.request(request, answer, version=version)
