"""The transactions of one lane, live: writing their markers, and waiting until they are over.

Owns the order in which a transaction ends: its outcome is durable before any marker is, and all
markers are durable before it is reported as over. Parts in the coordinator's own lane need no wait:
a lane's objects become durable in order, so outcome, markers and end may share one. Other brokers
get messages that name the parts they must end (`distant_ends.py`).
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple, Protocol, TypeVar

from holdfast.broker.groups.lane_groups import LaneGroups, refusal
from holdfast.broker.transactions.distant_ends import DistantPart, Leaders, end_parts
from holdfast.broker.transactions.markers import add_marker
from holdfast.broker.transactions.unwritten import UnwrittenMarkers
from holdfast.broker.transactions.verification import (
    ADDS_PARTITIONS_SINCE,
    TransactionalAppend,
    Underway,
    not_verified,
    wrong_start,
)
from holdfast.environment import Environment
from holdfast.errors import HoldfastError, RetryError
from holdfast.groups.facts import TransactionalOffsetsEnded
from holdfast.identifiers import LaneId, PartitionId
from holdfast.log.data_lane import DataLane
from holdfast.protocol.api import ErrorCode, Refused
from holdfast.transactions.decide import (
    FreshIdNeeded,
    ProducerIdAndEpoch,
    TransactionRules,
    abort,
    expire,
    extend,
    is_overdue,
    verify,
)
from holdfast.transactions.facts import TransactionEnded, TransactionEnding, TransactionFact
from holdfast.transactions.state import PendingMarker, Transaction, TransactionPhase

log = logging.getLogger("holdfast.broker")

DecidedT = TypeVar("DecidedT")
RETRY_S = 0.5
ENDING_WAIT_S = 5.0


class Participants(Leaders, Protocol):
    """The places of partitions and groups that take part in transactions, on any broker."""

    underway: Underway

    def lane_of_name(self, name: str) -> LaneId:
        """Return the lane that coordinates a group."""
        ...

    def place_of(self, partition: PartitionId) -> DataLane | LaneId | None:
        """Return the lane of a partition, or only its id if another broker leads it.

        Return None if the partition's topic is deleted, or not known here yet.
        """
        ...

    def groups_of(self, group_id: str) -> LaneGroups | ErrorCode: ...

    async def look(self) -> None:
        """Learn all topics that are durable now."""
        ...

    async def new_producer_id(self) -> int: ...


class _Parts(NamedTuple):
    """The parts of a transaction by their place, without those whose topic is deleted."""

    partitions: list[tuple[DataLane, PartitionId]]
    groups: list[tuple[LaneGroups, str]]
    elsewhere: list[DistantPart]

    def lanes(self) -> dict[LaneId, DataLane]:
        """Return the lanes of this broker that have parts."""
        lanes = [lane for lane, _ in self.partitions] + [groups.lane for groups, _ in self.groups]
        return {lane.lane: lane for lane in lanes}

    @property
    def is_offline(self) -> bool:
        """True if a partition waits for a disk. Its marker must come after the records there."""
        return any(lane.is_offline(partition) for lane, partition in self.partitions)


class Leaving(RetryError):
    """A lane of this broker takes nothing more: its next owner must end the part."""


class LaneTransactions:
    """The running coordinator of a lane's transactional ids."""

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
        """Transactions that wait for markers in other lanes, each with a future of its end."""
        self.unwritten = UnwrittenMarkers(lane.lane)
        self.ended = {"committed": 0, "aborted": 0, "timed_out": 0}
        """The number of transactions that ended here, by result."""
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
        """Return the error if nothing can be decided here any more, otherwise None."""
        if self.lane.is_open:
            return None
        return refusal(self.lane.failure)

    def decide(self, fact: TransactionFact, *, is_overdue: bool = False) -> None:
        self.lane.add(fact)
        if isinstance(fact, TransactionEnding):
            result = "committed" if fact.committed else "timed_out" if is_overdue else "aborted"
            self.ended[result] += 1

    def barrier(self, transactional_id: str) -> asyncio.Future[None] | None:
        """Return a future that resolves when everything decided about an id is durable, or None.

        The future is shared, so it is never awaited directly.
        """
        if self.lane.state.transactions.is_settled(transactional_id):
            return None
        return self.lane.barrier()

    async def settled(self, transactional_id: str) -> ErrorCode | None:
        """Wait until everything decided about an id is durable. Return the error if that failed."""
        barrier = self.barrier(transactional_id)
        if barrier is None:
            return None
        await asyncio.wait({barrier})
        error = barrier.exception()
        return refusal(error) if error is not None else None

    def extend(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        *,
        partitions: Collection[PartitionId] = (),
        groups: Collection[str] = (),
    ) -> ErrorCode | None:
        """Add partitions and groups to the producer's transaction, or return the error."""
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
        """Return the refusal if a batch may not open its transaction (KIP-890), otherwise None."""
        name = append.transactional_id or ""
        producer = ProducerIdAndEpoch(append.producer_id, append.producer_epoch)
        refused = wrong_start(append)
        if refused is not None:
            return refused
        if append.api_version >= ADDS_PARTITIONS_SINCE:
            problem = self.extend(name, producer, partitions=[append.partition])
        else:
            problem = self.problem() or verify(self.known(name), producer, append.partition)
        is_here = self._participants.place_of(append.partition) is self.lane
        if problem is None and not is_here and not self.lane.is_valid():
            # A newer coordinator may have ended it. The one that this batch opens would then never
            # end.
            problem = ErrorCode.NOT_COORDINATOR
        return not_verified(append, problem) if problem is not None else None

    async def with_fresh_id(self, decide: Callable[[int | None], DecidedT]) -> DecidedT:
        """Decide, and decide again with a new producer id if one turns out to be needed."""
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
            self._write(self._parts(transaction), marker)
            self.decide(TransactionEnded(name, self.now_ms()))
        else:
            self._ending[name] = asyncio.get_running_loop().create_future()
            self.lane.spawn(self._finish_elsewhere(name, marker))

    def ending(self, transactional_id: str) -> asyncio.Future[None] | None:
        """Return a future that resolves when the transaction that ends now is over, or None."""
        return self._ending.get(transactional_id)

    async def wait_for_end(self, transactional_id: str) -> None:
        """Wait a while for the last transaction to be over, before a request for the next one.

        Without this wait, the client would ask again and again.
        """
        ending = self.ending(transactional_id)
        if ending is not None:
            await asyncio.wait({ending}, timeout=ENDING_WAIT_S)

    def _is_all_here(self, transaction: Transaction) -> bool:
        """True if all parts are in the coordinator's own lane, and none is offline."""
        lanes = [self._participants.place_of(partition) for partition in transaction.partitions]
        for group_id in transaction.groups:
            groups = self._participants.groups_of(group_id)
            lanes.append(groups.lane if isinstance(groups, LaneGroups) else None)
        is_offline = any(self.lane.is_offline(each) for each in transaction.partitions)
        return not is_offline and all(lane is self.lane for lane in lanes)

    def _parts(self, transaction: Transaction) -> _Parts:
        parts = _Parts([], [], [])
        for partition in sorted(transaction.partitions):
            lane = self._participants.place_of(partition)
            if isinstance(lane, DataLane):
                parts.partitions.append((lane, partition))
            elif lane is not None:
                parts.elsewhere.append(DistantPart(lane, partition))
        for group_id in sorted(transaction.groups):
            groups = self._participants.groups_of(group_id)
            if isinstance(groups, LaneGroups):
                parts.groups.append((groups, group_id))
            else:
                lane_id = self._participants.lane_of_name(group_id)
                parts.elsewhere.append(DistantPart(lane_id, group_id))
        return parts

    def _write(self, parts: _Parts, marker: PendingMarker) -> None:
        """End a transaction on the parts that this broker leads."""
        for lane in parts.lanes().values():
            if not lane.is_open:
                raise Leaving(f"lane {lane.lane}: it is moving to another broker")
        for lane, partition in parts.partitions:
            self._participants.underway.ended(marker.producer_id, partition)
            refused = add_marker(
                lane,
                partition,
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                committed=marker.committed,
                coordinator_epoch=self.lane.leader_epoch,
                now_ms=self.now_ms(),
            )
            if refused is not None:
                # The partition knows a newer epoch: this transaction has ended there already.
                log.warning("marker_refused error=%s: %s", refused.error, refused.message)
        for groups, group_id in parts.groups:
            self._participants.underway.ended(marker.producer_id, group_id)
            _end_offsets(groups, group_id, marker)

    async def _finish_elsewhere(self, name: str, marker: PendingMarker) -> None:
        try:
            await self._tell_others(name, marker)
        finally:
            is_written = self.lane.is_open
            self.unwritten.over(name, self._environment.monotonic(), is_written=is_written)
            ending = self._ending.pop(name, None)
            if ending is not None:
                ending.set_result(None)

    async def _tell_others(self, name: str, marker: PendingMarker) -> None:
        """Write the markers of other lanes, once the outcome can no longer change."""
        try:
            await self.lane.flush()
        except HoldfastError:
            return  # not ours to end any more: the lane's next owner sees how it ends
        while self.lane.is_open:
            transaction = self.known(name)
            if transaction is None or transaction.marker != marker:
                return
            try:
                await self._know_topics(transaction)
                # The next owner of this lane waits until our last proof is out of date. Until then
                # no later transaction of this producer can be mistaken for this one.
                await self.lane.validate()
                parts = self._parts(transaction)
                if parts.is_offline:
                    await asyncio.sleep(RETRY_S)
                    continue
                self._write(parts, marker)
                await asyncio.gather(
                    end_parts(self._participants, self.lane, name, marker, parts.elsewhere),
                    *(_durable(lane) for lane in parts.lanes().values()),
                )
                if self.lane.is_open:
                    self.decide(TransactionEnded(name, self.now_ms()))
                return
            except HoldfastError as error:
                self.unwritten.failed(name, error, self._environment.monotonic())
                await asyncio.sleep(RETRY_S)

    async def _know_topics(self, transaction: Transaction) -> None:
        """Find out whether topics that are not known are new to this broker, or deleted."""
        if any(self._participants.place_of(each) is None for each in transaction.partitions):
            await self._participants.look()

    async def abort_overdue(self) -> None:
        """Abort transactions that are open for too long, and forget ids that are no longer used."""
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
        """End a transaction against its producer. Return True if that is decided now.

        The reason is that it is open for too long or, if an epoch is given, that an administrator
        wants it.
        """
        fresh_id = None
        for _ in range(2):
            transaction = self.known(name)
            if transaction is None or transaction.phase is not TransactionPhase.ONGOING:
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


def admitted(here: LaneTransactions | ErrorCode, append: TransactionalAppend) -> Refused | None:
    """Return the refusal if this broker's coordinator does not let a batch open its transaction."""
    if not append.transactional_id:
        return Refused(
            ErrorCode.INVALID_RECORD,
            f"{append.partition}: a transactional record batch needs a transactional id in the"
            " request",
        )
    return not_verified(append, here) if isinstance(here, ErrorCode) else here.admit(append)


async def _durable(lane: DataLane) -> None:
    await lane.flush()
    await (
        lane.validate()
    )  # only the newest owner of this lane can know that there was nothing to end in it


def _end_offsets(groups: LaneGroups, group_id: str, marker: PendingMarker) -> None:
    group = groups.coordinator.state.groups.get(group_id)
    if group is not None and marker.producer_id in group.pending:
        groups.decide(
            TransactionalOffsetsEnded(
                group_id, marker.producer_id, marker.producer_epoch, marker.committed
            )
        )
