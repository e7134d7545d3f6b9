"""Transactional producers of the simulation: every step as Kafka's clients take it, and zombies.

Owns how such a client behaves: retries with the same sequence and epoch, an abort after what it is
unsure of, a new epoch after that; some stand still in mid-transaction and go on when another has
their transactional id. Must never look into a broker.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from holdfast.protocol.api import ErrorCode
from holdfast.protocol.message import Message
from holdfast.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
    produce,
    txn_offset_commit,
)
from holdfast.records.record import encode_batch
from holdfast.verify.client import Clients, Refused, new_records
from holdfast.verify.history import READ_COMMITTED, Call, Done, Operation, Produce, Produced
from holdfast.verify.vocabulary import (
    CommitOffsets,
    EndTransaction,
    ExtendTransaction,
    Initialised,
    InitProducer,
    OffsetsTaken,
    Partition,
)
from holdfast.verify.workload import Consumer

TRIES_MAX = 12
REQUEST_TIMEOUT_MS = 3_000
INIT_VERSION = 4
ADD_VERSION = 3
FENCED = frozenset(
    ("INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING", "PRODUCER_FENCED", "ZOMBIE")
)
ABORTABLE = frozenset(("INVALID_TXN_STATE", "TRANSACTION_ABORTABLE", "INVALID_RECORD"))


class Offsets:
    """Offsets that a transaction commits, and on whose behalf."""

    def __init__(
        self, group: str, offsets: dict[Partition, int], member: str = "", generation: int = -1
    ) -> None:
        self.group = group
        self.offsets = offsets
        self.member = member
        self.generation = generation
        self.instance: str | None = None


class Transactional(Consumer):
    """A producer with a transactional id; `is_new` ones speak KIP-890."""

    def __init__(
        self, clients: Clients, name: str, transactional_id: str, *, is_new: bool, timeout_ms: int
    ) -> None:
        super().__init__(clients, name, READ_COMMITTED)
        self.transactional_id = transactional_id
        self.is_fenced = False
        self._is_new = is_new
        self._timeout_ms = timeout_ms
        self._producer_id = -1
        self._epoch = -1
        self._transaction = -1
        self._sequences: dict[Partition, int] = {}
        self._added: set[str] = set()
        clients.transactional_ids.add(transactional_id)

    async def transact(
        self, partitions: list[Partition], transactions: int, pause_s: float, group: str
    ) -> None:
        """So many transactions; one that is fenced may take its id back, or give up."""
        chance = self.clients.chance
        await self.pause(0.0, pause_s)
        if not await self.init():
            return
        for number in range(transactions):
            if self.clients.is_over or (self.is_fenced and chance.random() < 0.5):
                return
            if self.is_fenced and not await self.init():
                return
            await self._one(partitions, group if chance.random() < 0.4 else "", number)
            await self.pause(0.0, pause_s)

    async def _one(self, partitions: list[Partition], group: str, number: int) -> None:
        chance = self.clients.chance
        self.begin()
        is_sent = True
        for _ in range(1 + int(chance.random() * 3)):
            await self.maybe_stall()
            values = self.clients.new_values(1 + int(chance.random() * 2))
            is_sent = await self.send(partitions[int(chance.random() * len(partitions))], values)
            if not is_sent:
                break
        if is_sent and group:
            partition = partitions[int(chance.random() * len(partitions))]
            is_sent = await self.commit(Offsets(group, {partition: 10 * number + 1}))
        await self.maybe_stall()
        await self.end(committed=is_sent and chance.random() < 0.75)

    async def maybe_stall(self, share: float = 0.06) -> None:
        """Now and then stand still, for longer than a timeout, or until another has the id."""
        if self.clients.chance.random() < share:
            await self.pause(0.5, 4.0)

    async def init(self, *, to_the_end: bool = False) -> bool:
        """Take the transactional id; whoever has it is fenced."""
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=self._timeout_ms
        )

        def understand(response: init_producer_id.InitProducerIdResponse) -> Any:
            return refusal(response.error_code) or Initialised(
                response.producer_id, response.producer_epoch
            )

        for _ in range(3 * TRIES_MAX):
            answer = await self._ask(
                InitProducer(self.transactional_id), request, INIT_VERSION, understand
            )
            if isinstance(answer, Initialised):
                self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
                self._sequences.clear()
                self.is_fenced = False
                return True
            if self.clients.is_over and not to_the_end:
                return False
            await self.pause(0.02, 0.4)
        return False

    def begin(self) -> None:
        """The next transaction, of which no broker knows yet."""
        self._transaction = self.clients.new_number()
        self._added.clear()

    async def send(self, partition: Partition, values: tuple[int, ...]) -> bool:
        """Records of this transaction; whether they are acked."""
        if not await self._add(partition):
            return False
        sequence = self._sequences.get(partition, 0)
        records = new_records(self.clients, values)
        batch = encode_batch(
            records,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            transactional=True,
        )
        self.clients.remember(batch, self._producer_id, sequence, values)
        operation = Produce(
            partition,
            values,
            self._producer_id,
            self._epoch,
            sequence,
            self.transactional_id,
            self._transaction,
        )
        topic, _, number = partition.rpartition("/")

        def request() -> produce.ProduceRequest:
            data = produce.PartitionProduceData(
                index=int(number), records=memoryview(bytearray(batch))
            )
            return produce.ProduceRequest(
                transactional_id=self.transactional_id,
                acks=-1,
                timeout_ms=REQUEST_TIMEOUT_MS,
                topic_data=[produce.TopicProduceData(name=topic, partition_data=[data])],
            )

        def understand(response: produce.ProduceResponse) -> Any:
            told = response.responses[0].partition_responses[0]
            return refusal(told.error_code) or Produced(told.base_offset, told.log_start_offset)

        if await self._until_done(operation, request, 12 if self._is_new else 11, understand):
            self._sequences[partition] = sequence + len(values)
            self.clients.acked += 1
            return True
        self.is_fenced = True  # unsure: only a new epoch makes sure
        return False

    async def _add(self, partition: Partition) -> bool:
        """As clients before KIP-890: say first which partition is to be in the transaction."""
        if self._is_new or partition in self._added:
            return True
        topic, _, number = partition.rpartition("/")
        wanted = add_partitions_to_txn.AddPartitionsToTxnTopic(name=topic, partitions=[int(number)])
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[wanted],
        )

        def understand(response: add_partitions_to_txn.AddPartitionsToTxnResponse) -> Any:
            told = response.results_by_topic_v3_and_below[0].results_by_partition[0]
            return refusal(told.partition_error_code) or Done()

        if await self._until_done(self._extension(), lambda: request, ADD_VERSION, understand):
            self._added.add(partition)
            return True
        return False

    def _extension(self) -> ExtendTransaction:
        return ExtendTransaction(
            self.transactional_id, self._transaction, self._producer_id, self._epoch
        )

    async def commit(self, wanted: Offsets) -> bool:
        """Offsets of a group, which count when the transaction commits; whether all are taken."""
        if not await self._add_group(wanted.group):
            return False
        for _ in range(TRIES_MAX):
            answer = await self._commit_once(wanted)
            if isinstance(answer, OffsetsTaken):
                return len(answer.partitions) == len(wanted.offsets)
            if self.clients.is_over or (
                isinstance(answer, Refused) and answer.error not in RETRIED
            ):
                return False
            await self.pause(0.02, 0.4)
        return False

    async def _commit_once(self, wanted: Offsets) -> OffsetsTaken | Refused | None:
        commit = self.clients.new_number()
        request = txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=wanted.group,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            generation_id=wanted.generation,
            member_id=wanted.member,
            group_instance_id=wanted.instance,
            topics=[
                txn_offset_commit.TxnOffsetCommitRequestTopic(
                    name=partition.rpartition("/")[0],
                    partitions=[
                        txn_offset_commit.TxnOffsetCommitRequestPartition(
                            partition_index=int(partition.rpartition("/")[2]),
                            committed_offset=offset,
                            committed_metadata=str(commit),
                        )
                    ],
                )
                for partition, offset in wanted.offsets.items()
            ],
        )
        operation = CommitOffsets(
            wanted.group,
            wanted.member,
            wanted.generation,
            commit,
            tuple(wanted.offsets.items()),
            self.transactional_id,
            self._transaction,
            self._producer_id,
            self._epoch,
        )
        return await self._ask(operation, request, 5 if self._is_new else 3, taken)

    async def _add_group(self, group: str) -> bool:
        if self._is_new or group in self._added:
            return True
        request = add_offsets_to_txn.AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            group_id=group,
        )

        def understand(response: add_offsets_to_txn.AddOffsetsToTxnResponse) -> Any:
            return refusal(response.error_code) or Done()

        if await self._until_done(self._extension(), lambda: request, ADD_VERSION, understand):
            self._added.add(group)
            return True
        return False

    async def end(self, *, committed: bool) -> bool:
        """Commit or abort; whether that is what happened. Unsure is like fenced."""
        request = end_txn.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=committed,
        )
        operation = EndTransaction(
            self.transactional_id, self._transaction, committed, self._producer_id, self._epoch
        )
        next_producer = (self._producer_id, self._epoch)

        def understand(response: end_txn.EndTxnResponse) -> Any:
            nonlocal next_producer
            if not response.error_code and self._is_new:
                next_producer = (response.producer_id, response.producer_epoch)
            return refusal(response.error_code) or Done()

        version = 5 if self._is_new else 4
        if not await self._until_done(operation, lambda: request, version, understand):
            self.is_fenced = True
            return False
        if self._is_new:
            self._producer_id, self._epoch = next_producer
            self._sequences.clear()
        return True

    async def _until_done(
        self,
        operation: Operation,
        request: Callable[[], Message],
        version: int,
        understand: Callable[[Any], Any],
    ) -> bool:
        """Ask again and again; whether it is done. Not so: refused for good, or unsure."""
        for _ in range(TRIES_MAX):
            answer = await self._ask(operation, request(), version, understand)
            if answer is not None and not isinstance(answer, Refused):
                return True
            if isinstance(operation, EndTransaction) and self.clients.chance.random() < 0.4:
                return False  # the process dies here, and never knows how it ended
            if isinstance(answer, Refused) and answer.error in FENCED:
                self.is_fenced = True
                return False
            if isinstance(answer, Refused) and answer.error in ABORTABLE:
                return False
            await self.pause(0.02, 0.4)
        return False

    async def _ask(
        self,
        operation: Operation,
        request: Message,
        version: int,
        understand: Callable[[Any], Any],
    ) -> Any:
        key = operation.partition if isinstance(operation, Produce) else self.transactional_id
        call, answer = await self.request(key, operation, request, version, understand)
        self._complete(call, answer)
        return answer

    def _complete(self, call: Call, answer: Any) -> None:
        if answer is not None and not isinstance(answer, Refused):
            self.ok(call, answer)


RETRIED = frozenset(
    (
        "CONCURRENT_TRANSACTIONS",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "REBALANCE_IN_PROGRESS",
        "UNKNOWN_TOPIC_OR_PARTITION",
    )
)


def refusal(code: int) -> Refused | None:
    return Refused(ErrorCode(code).name) if code else None


def taken(response: Any) -> OffsetsTaken | Refused:
    """Which partitions of a commit were taken, and which not; an error of all is a refusal.

    What a stale member epoch is told looks like the refusal of all its partitions.
    """
    answers = [
        (f"{topic.name}/{part.partition_index}", part.error_code)
        for topic in response.topics
        for part in topic.partitions
    ]
    others = [error for _, error in answers if error and error != ErrorCode.STALE_MEMBER_EPOCH]
    if others:
        return Refused(ErrorCode(others[0]).name)
    return OffsetsTaken(
        tuple(partition for partition, error in answers if not error),
        tuple(partition for partition, error in answers if error),
    )


async def finish_transactions(clients: Clients) -> bool:
    """Take every transactional id once, so that no transaction is left open; whether all were."""
    results = [
        await Transactional(
            clients, "janitor", name, is_new=True, timeout_ms=REQUEST_TIMEOUT_MS
        ).init(to_the_end=True)
        for name in sorted(clients.transactional_ids)
    ]
    await asyncio.sleep(0)
    return all(results)
