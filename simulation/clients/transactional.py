"""Transactional producers of the simulation, some of which become zombies.

Owns how such a producer behaves, step by step as Kafka's clients do: it retries with the same
sequence and epoch, aborts if it does not know an outcome, and then takes a new epoch. Some pause in
the middle of a transaction, and go on after another producer has taken their transactional id. Must
never look into a broker.
"""

import functools
from collections.abc import Callable
from typing import Any

from holdfast.protocol.message import Message
from holdfast.protocol.messages import end_txn, init_producer_id
from holdfast.records.record import encode_batch
from holdfast.verify.history import READ_COMMITTED, Call, Operation, Produce
from holdfast.verify.vocabulary import (
    CommitOffsets,
    EndTransaction,
    ExtendTransaction,
    InitialisedProducer,
    InitProducer,
    OffsetsTaken,
    Partition,
)
from simulation.clients.client import CallRefused, SimulatedClients, new_records
from simulation.clients.transaction_requests import (
    REQUEST_TIMEOUT_MS,
    Identity,
    Offsets,
    add_group_request,
    add_partition_request,
    done,
    end_request,
    offsets_request,
    partition_added,
    produce_request,
    produced,
    refusal,
    taken,
)
from simulation.clients.workload import Consumer

TRIES_MAX = 12
INIT_VERSION = 4
ADD_VERSION = 3
FENCED = frozenset(
    ("INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING", "PRODUCER_FENCED", "ZOMBIE")
)
ABORTABLE = frozenset(("INVALID_TXN_STATE", "TRANSACTION_ABORTABLE", "INVALID_RECORD"))


class Transactional(Consumer):
    """A producer with a transactional id; if `is_new`, it uses the protocol of KIP-890."""

    def __init__(
        self,
        clients: SimulatedClients,
        name: str,
        transactional_id: str,
        *,
        is_new: bool,
        timeout_ms: int,
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
        """Run `transactions` transactions; a fenced producer takes its id back, or gives up."""
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

    @property
    def _identity(self) -> Identity:
        return Identity(self.transactional_id, self._producer_id, self._epoch)

    async def maybe_stall(self, share: float = 0.06) -> None:
        """Sometimes pause, so that the transaction may time out or another producer take the id."""
        if self.clients.chance.random() < share:
            await self.pause(0.5, 4.0)

    async def init(self, *, to_the_end: bool = False) -> bool:
        """Initialise the transactional id, which fences its current producer; True if it
        succeeded."""
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=self._timeout_ms
        )

        def understand(response: init_producer_id.InitProducerIdResponse) -> Any:
            return refusal(response.error_code) or InitialisedProducer(
                response.producer_id, response.producer_epoch
            )

        for _ in range(3 * TRIES_MAX):
            answer = await self._ask(
                InitProducer(self.transactional_id), request, INIT_VERSION, understand
            )
            if isinstance(answer, InitialisedProducer):
                self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
                self._sequences.clear()
                self.is_fenced = False
                return True
            if self.clients.is_over and not to_the_end:
                return False
            await self.pause(0.02, 0.4)
        return False

    def begin(self) -> None:
        """Begin the next transaction; no broker knows of it yet."""
        self._transaction = self.clients.new_number()
        self._added.clear()

    async def send(self, partition: Partition, values: tuple[int, ...]) -> bool:
        """Send records in this transaction; return True if they are acked."""
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
        request = functools.partial(produce_request, self._identity, partition, batch)
        if await self._until_done(operation, request, 12 if self._is_new else 11, produced):
            self._sequences[partition] = sequence + len(values)
            self.clients.acked += 1
            return True
        self.is_fenced = True  # the outcome is unknown: only a new epoch settles it
        return False

    async def _add(self, partition: Partition) -> bool:
        """Add a partition to the transaction before the first record, as clients before KIP-890
        do."""
        if self._is_new or partition in self._added:
            return True
        request = add_partition_request(self._identity, partition)
        if await self._until_done(self._extension(), lambda: request, ADD_VERSION, partition_added):
            self._added.add(partition)
            return True
        return False

    def _extension(self) -> ExtendTransaction:
        return ExtendTransaction(
            self.transactional_id, self._transaction, self._producer_id, self._epoch
        )

    async def commit(self, wanted: Offsets) -> bool:
        """Commit a group's offsets in this transaction; return True if all of them are taken."""
        if not await self._add_group(wanted.group):
            return False
        for _ in range(TRIES_MAX):
            answer = await self._commit_once(wanted)
            if isinstance(answer, OffsetsTaken):
                return len(answer.partitions) == len(wanted.offsets)
            if self.clients.is_over or (
                isinstance(answer, CallRefused) and answer.error not in RETRIED
            ):
                return False
            await self.pause(0.02, 0.4)
        return False

    async def _commit_once(self, wanted: Offsets) -> OffsetsTaken | CallRefused | None:
        commit = self.clients.new_number()
        request = offsets_request(self._identity, wanted, commit)
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
        request = add_group_request(self._identity, group)
        if await self._until_done(self._extension(), lambda: request, ADD_VERSION, done):
            self._added.add(group)
            return True
        return False

    async def end(self, *, committed: bool) -> bool:
        """Commit or abort; return True if that is what happened.

        A producer that does not know the outcome continues as if it were fenced.
        """
        request = end_request(self._identity, committed=committed)
        operation = EndTransaction(
            self.transactional_id, self._transaction, committed, self._producer_id, self._epoch
        )
        next_producer = (self._producer_id, self._epoch)

        def understand(response: end_txn.EndTxnResponse) -> Any:
            nonlocal next_producer
            if not response.error_code and self._is_new:
                next_producer = (response.producer_id, response.producer_epoch)
            return done(response)

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
        """Repeat a request until it is done; return False if it is refused for good or unknown."""
        for _ in range(TRIES_MAX):
            answer = await self._ask(operation, request(), version, understand)
            if answer is not None and not isinstance(answer, CallRefused):
                return True
            if isinstance(operation, EndTransaction) and self.clients.chance.random() < 0.4:
                return False  # the process crashes here and never learns the outcome
            if isinstance(answer, CallRefused) and answer.error in FENCED:
                self.is_fenced = True
                return False
            if isinstance(answer, CallRefused) and answer.error in ABORTABLE:
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
        if answer is not None and not isinstance(answer, CallRefused):
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


async def finish_transactions(clients: SimulatedClients) -> bool:
    """Initialise every transactional id once, so that no transaction stays open.

    Return True if all of them were initialised.
    """
    results = [
        await Transactional(
            clients, "janitor", name, is_new=True, timeout_ms=REQUEST_TIMEOUT_MS
        ).init(to_the_end=True)
        for name in sorted(clients.transactional_ids)
    ]
    return all(results)
