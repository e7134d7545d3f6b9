"""The transactions of one lane, live: markers that are written, ends that are waited for.

Owns the order in which a transaction ends: how it ends is durable before any marker is, and all
markers are before it is told to be over. Participants in the coordinator's own lane need no wait:
a lane's objects become durable in order, so decision, markers and end may share one.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple, Protocol, TypeVar

from holdfast.broker.groups import LaneGroups, refusal
from holdfast.broker.markers import add_marker
from holdfast.broker.verification import TransactionalAppend
from holdfast.environment import Environment
from holdfast.errors import HoldfastError, RetryError
from holdfast.groups.facts import TransactionalOffsetsEnded
from holdfast.identifiers import LaneId, PartitionId
from holdfast.log.append import Refused
from holdfast.log.data_lane import DataLane
from holdfast.protocol.api import ErrorCode
from holdfast.transactions.decide import (
    FreshIdNeeded,
    Producer,
    TransactionRules,
    abort,
    expire,
    extend,
    is_overdue,
    verify,
)
from holdfast.transactions.facts import TransactionEnded, TransactionEnding, TransactionFact
from holdfast.transactions.state import Marker, Phase, Transaction

log = logging.getLogger("holdfast.broker")

DecidedT = TypeVar("DecidedT")
RETRY_S = 0.5
ENDING_WAIT_S = 5.0
ADDS_PARTITIONS_SINCE = 12
"""Of Produce: clients that speak it do not send AddPartitionsToTxn (KIP-890)."""


class Participants(Protocol):
    """Who else takes part in transactions: the broker's partitions and groups, and others'."""

    def place_of(self, partition: PartitionId) -> DataLane | LaneId | None:
        """The lane of a partition, or which one it is, of another broker; None where its topic is
        gone, or not known here yet."""
        ...

    def groups_of(self, group_id: str) -> LaneGroups | ErrorCode: ...

    async def look(self) -> None:
        """Know all topics that are durable now."""
        ...

    async def new_producer_id(self) -> int: ...


class _Part(NamedTuple):
    """What of a transaction is in one lane of this broker."""

    lane: DataLane
    partitions: list[PartitionId]
    groups: list[str]

    @property
    def is_offline(self) -> bool:
        """Whether a partition of it waits for a disk: its marker comes behind what is there."""
        return any(self.lane.is_offline(partition) for partition in self.partitions)


class Elsewhere(RetryError):
    """A part of a transaction is led by another broker."""


class LaneTransactions:
    """The coordinator of a lane's transactional ids, at work."""

    def __init__(
        self,
        lane: DataLane,
        participants: Participants,
        environment: Environment,
        rules: TransactionRules,
    ) -> None:
        self.lane = lane
        self.rules = rules
        self._participants = participants
        self._environment = environment
        self._ending: dict[str, asyncio.Future[None]] = {}
        """Transactions that wait for markers in other lanes, and who waits for them."""
        self.ended = {"committed": 0, "aborted": 0, "timed_out": 0}
        """How transactions have ended here."""
        for transaction in list(lane.state.transactions.transactions.values()):
            if transaction.phase.is_ending:
                self.finish(transaction)

    def known(self, transactional_id: str) -> Transaction | None:
        return self.lane.state.transactions.transactions.get(transactional_id)

    def all(self) -> Iterable[Transaction]:
        return self.lane.state.transactions.transactions.values()

    def now_ms(self) -> int:
        return self._environment.now_ms()

    def problem(self) -> ErrorCode | None:
        """Why nothing can be decided here any more."""
        if self.lane.appender.is_open:
            return None
        return refusal(self.lane.appender.failure)

    def decide(self, fact: TransactionFact, *, is_overdue: bool = False) -> None:
        self.lane.appender.add(fact)
        if isinstance(fact, TransactionEnding):
            result = "committed" if fact.committed else "timed_out" if is_overdue else "aborted"
            self.ended[result] += 1

    def barrier(self, transactional_id: str) -> asyncio.Future[None] | None:
        """Resolves when all that was decided about an id is durable; shared, so never awaited
        bare."""
        if self.lane.state.transactions.is_settled(transactional_id):
            return None
        return self.lane.appender.barrier()

    async def settled(self, transactional_id: str) -> ErrorCode | None:
        """Wait until all that was decided about an id is durable, or say why it is not."""
        barrier = self.barrier(transactional_id)
        if barrier is None:
            return None
        await asyncio.wait({barrier})
        error = barrier.exception()
        return refusal(error) if error is not None else None

    def extend(
        self,
        transactional_id: str,
        producer: Producer,
        *,
        partitions: Collection[PartitionId] = (),
        groups: Collection[str] = (),
    ) -> ErrorCode | None:
        """Take partitions and groups into the producer's transaction; or why not."""
        problem = self.problem()
        if problem is not None:
            return problem
        decided = extend(
            self.known(transactional_id),
            producer,
            partitions=partitions,
            groups=groups,
            now_ms=self.now_ms(),
        )
        if isinstance(decided, ErrorCode):
            return decided
        if decided is not None:
            self.decide(decided)
        return None

    def admit(self, append: TransactionalAppend) -> Refused | None:
        """Whether a batch may open its transaction on a partition (KIP-890)."""
        name = append.transactional_id or ""
        producer = Producer(append.producer_id, append.producer_epoch)
        if append.api_version >= ADDS_PARTITIONS_SINCE:
            if append.base_sequence != 0:
                # Each transaction has an epoch of its own: an earlier batch was refused or is late.
                return Refused(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.name,
                    f"{append.partition}: a transaction begins with sequence 0, not"
                    f" {append.base_sequence}",
                )
            problem = self.extend(name, producer, partitions=[append.partition])
        else:
            problem = self.problem() or verify(self.known(name), producer, append.partition)
            if problem is ErrorCode.TRANSACTION_ABORTABLE:
                problem = ErrorCode.INVALID_TXN_STATE
        if problem is None:
            return None
        return Refused(problem.name, f"{append.partition}: transactional id {name}: {problem.name}")

    async def with_fresh_id(self, decide: Callable[[int | None], DecidedT]) -> DecidedT:
        """Decide; and anew with a new producer id where that turns out to be needed."""
        decided = decide(None)
        if isinstance(decided, FreshIdNeeded):
            decided = decide(await self._participants.new_producer_id())
        return decided

    def finish(self, transaction: Transaction) -> None:
        """Write the markers of a transaction whose end is decided, and end it."""
        marker = transaction.marker
        if marker is None:
            return
        name = transaction.transactional_id
        if self._is_all_here(transaction):
            here = self._parts(transaction).get(self.lane.lane)
            if here is not None:
                self._write(here, marker)
            self.decide(TransactionEnded(name, self.now_ms()))
        else:
            self._ending[name] = asyncio.get_running_loop().create_future()
            self.lane.spawn(self._finish_elsewhere(name, marker))

    def ending(self, transactional_id: str) -> asyncio.Future[None] | None:
        """Resolves when the transaction that ends now is over, so that the next may begin."""
        return self._ending.get(transactional_id)

    async def wait_for_end(self, transactional_id: str) -> None:
        """Keep a request for the next transaction until the last one is over, a while at most:
        its client would ask again and again."""
        ending = self.ending(transactional_id)
        if ending is not None:
            await asyncio.wait({ending}, timeout=ENDING_WAIT_S)

    def _is_all_here(self, transaction: Transaction) -> bool:
        """Whether all that takes part is in the coordinator's own lane."""
        lanes = [self._participants.place_of(partition) for partition in transaction.partitions]
        for group_id in transaction.groups:
            groups = self._participants.groups_of(group_id)
            lanes.append(groups.lane if isinstance(groups, LaneGroups) else None)
        is_offline = any(self.lane.is_offline(each) for each in transaction.partitions)
        return not is_offline and all(lane is self.lane for lane in lanes)

    def _parts(self, transaction: Transaction) -> dict[LaneId, _Part]:
        """Who takes part, by lane; what is gone with its topic takes part no more."""
        parts: dict[LaneId, _Part] = {}
        for partition in sorted(transaction.partitions):
            lane = self._participants.place_of(partition)
            if isinstance(lane, DataLane):
                parts.setdefault(lane.lane, _Part(lane, [], [])).partitions.append(partition)
            elif lane is not None:
                raise Elsewhere(f"lane {lane} of partition {partition} is led by another broker")
        for group_id in sorted(transaction.groups):
            groups = self._participants.groups_of(group_id)
            if isinstance(groups, ErrorCode):
                raise Elsewhere(f"group {group_id} is coordinated by another broker")
            lane = groups.lane
            parts.setdefault(lane.lane, _Part(lane, [], [])).groups.append(group_id)
        return parts

    def _write(self, part: _Part, marker: Marker) -> None:
        for partition in part.partitions:
            refused = add_marker(
                part.lane,
                partition,
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                committed=marker.committed,
                coordinator_epoch=self.lane.leader_epoch,
                now_ms=self.now_ms(),
            )
            if refused is not None:
                # The partition knows a newer epoch: this transaction has ended there already.
                log.warning("marker_refused %s error=%s", refused.message, refused.error)
        for group_id in part.groups:
            groups = self._participants.groups_of(group_id)
            if isinstance(groups, LaneGroups):
                _end_offsets(groups, group_id, marker)

    async def _finish_elsewhere(self, name: str, marker: Marker) -> None:
        try:
            await self._tell_others(name, marker)
        finally:
            ending = self._ending.pop(name, None)
            if ending is not None:
                ending.set_result(None)

    async def _tell_others(self, name: str, marker: Marker) -> None:
        """Write the markers of other lanes, once nobody can decide otherwise any more."""
        try:
            await self.lane.appender.flush()
        except HoldfastError:
            return  # not ours to end any more: whoever has the lane now sees how it ends
        while self.lane.appender.is_open:
            transaction = self.known(name)
            if transaction is None or transaction.marker != marker:
                return
            try:
                await self._participants.look()  # a topic may be new to this broker
                parts = self._parts(transaction)
                if any(part.is_offline for part in parts.values()):
                    await asyncio.sleep(RETRY_S)
                    continue
                # Who takes this lane over waits until our last look at it is out of date: until
                # then no later transaction of this producer can be mistaken for this one.
                await self.lane.appender.validate()
                for part in parts.values():
                    self._write(part, marker)
                for part in parts.values():
                    await part.lane.appender.flush()
                    # That there was nothing to end is known only to the newest owner.
                    await part.lane.appender.validate()
                if self.lane.appender.is_open:
                    self.decide(TransactionEnded(name, self.now_ms()))
                return
            except HoldfastError as error:
                log.warning("markers_not_written transactional_id=%s error=%s", name, error)
                await asyncio.sleep(RETRY_S)

    async def abort_overdue(self) -> None:
        """Abort transactions that are open for too long; forget ids that nobody uses."""
        for transaction in list(self.all()):
            if self.problem() is not None:
                return
            now_ms = self.now_ms()
            if is_overdue(transaction, now_ms):
                await self.abort_open(transaction.transactional_id)
                continue
            expired = expire(transaction, self.rules, now_ms)
            if expired is not None:
                self.decide(expired)

    async def abort_open(self, name: str, producer_epoch: int | None = None) -> bool:
        """End a transaction against its producer: because it is open for too long, or, where an
        epoch is given, because an administrator wants that. Whether that is decided now."""
        fresh_id = None
        for _ in range(2):
            transaction = self.known(name)
            if transaction is None or transaction.phase is not Phase.ONGOING:
                return False
            is_wanted = transaction.producer_epoch == producer_epoch
            if not is_wanted and not is_overdue(transaction, self.now_ms()):
                return False
            decided = abort(transaction, fresh_id=fresh_id, now_ms=self.now_ms())
            if not isinstance(decided, FreshIdNeeded):
                self.decide(decided.fact, is_overdue=not is_wanted)
                self.finish(transaction)
                reason = "aborted_by_administrator" if is_wanted else "timed_out"
                log.info("transaction_%s transactional_id=%s", reason, name)
                return True
            fresh_id = await self._participants.new_producer_id()
        return False


def _end_offsets(groups: LaneGroups, group_id: str, marker: Marker) -> None:
    group = groups.coordinator.state.groups.get(group_id)
    if group is not None and marker.producer_id in group.pending:
        groups.decide(
            TransactionalOffsetsEnded(
                group_id, marker.producer_id, marker.producer_epoch, marker.committed
            )
        )
