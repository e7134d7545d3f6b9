"""Bugs of groups and transactions that the simulation must find, each in one method of real code.

No production code knows of them. COORDINATORS names them all, with the workload that meets them.
"""

from collections.abc import Callable
from typing import Any

from simulation.broker_process import BrokerProcess

from holdfast.broker.broker import Broker
from holdfast.broker.groups.lane_groups import LaneGroups
from holdfast.broker.lanes.claiming import Claimer
from holdfast.broker.transactions.lane_transactions import LaneTransactions
from holdfast.groups.consumer.consumer_group import ConsumerGroup
from holdfast.groups.consumer.heartbeats import assignment
from holdfast.groups.consumer.reconciliation import reconciled
from holdfast.groups.consumer.state import reconciled_fact
from holdfast.groups.coordinator import GroupCoordinator
from holdfast.groups.facts import GenerationAssigned, OffsetsCommitted
from holdfast.groups.state import Group, GroupsState
from holdfast.groups.table import GroupTable
from holdfast.identifiers import CONTROL_LANE, PartitionId
from holdfast.log.data_lane import DataLane
from holdfast.log.partition import PartitionLog
from holdfast.log.state import LogState
from holdfast.log.transactions import Transactions
from holdfast.transactions.facts import TransactionEnded
from holdfast.transactions.state import TransactionPhase


class Hooked(dict):
    """What a broker has by lane; each that it opens passes through a saboteur."""

    def __init__(self, sabotage: Callable[[Any], None]) -> None:
        super().__init__()
        self._sabotage = sabotage

    def __setitem__(self, key: Any, value: Any) -> None:
        self._sabotage(value)
        super().__setitem__(key, value)


def hooked(attribute: str, sabotage: Callable[[Any], None]) -> type[BrokerProcess]:
    class Process(BrokerProcess):
        def make_broker(self) -> Broker:
            broker = super().make_broker()
            setattr(broker.served, attribute, Hooked(sabotage))
            return broker

    return Process


def lane_groups(bad: type[LaneGroups]) -> type[BrokerProcess]:
    def sabotage(groups: LaneGroups) -> None:
        groups.__class__ = bad

    return hooked("groups", sabotage)


def coordinator(bad: type[GroupCoordinator]) -> type[BrokerProcess]:
    def sabotage(groups: LaneGroups) -> None:
        groups.coordinator.__class__ = bad

    return hooked("groups", sabotage)


def consumer_groups(bad: type[ConsumerGroup]) -> type[BrokerProcess]:
    class Table(GroupTable):
        def open_consumer(self, group_id, now):
            group = super().open_consumer(group_id, now)
            group.__class__ = bad
            return group

    def sabotage(groups: LaneGroups) -> None:
        table = groups.coordinator._table
        table.__class__ = Table
        for group in table.consumer.values():
            group.__class__ = bad

    return hooked("groups", sabotage)


def lane_transactions(bad: type[LaneTransactions]) -> type[BrokerProcess]:
    def sabotage(transactions: LaneTransactions) -> None:
        transactions.__class__ = bad

    return hooked("transactions", sabotage)


def log_state(bad: type[LogState]) -> type[BrokerProcess]:
    def sabotage(lane: DataLane) -> None:
        lane.state.__class__ = bad

    return hooked("lanes", sabotage)


def groups_state(bad: type[GroupsState]) -> type[BrokerProcess]:
    def sabotage(lane: DataLane) -> None:
        lane.state.groups.__class__ = bad

    return hooked("lanes", sabotage)


def claimed(change: Callable[[LogState], None]) -> type[BrokerProcess]:
    """A process that gets something wrong in what it took over."""

    class Claimed(Claimer):
        async def claim(self, lane, kind):
            found = await super().claim(lane, kind)
            if lane != CONTROL_LANE:
                change(found.state)
            return found

    class Process(BrokerProcess):
        def make_broker(self) -> Broker:
            broker = super().make_broker()
            broker._claimer.__class__ = Claimed
            return broker

    return Process


# Groups.


class OwnerlessGroup(Group):
    __slots__ = ()

    def owner(self, name, partition):
        return None


class LateAcksCount(GroupCoordinator):
    def commit(self, group_id, *given, **named):
        group = self.state.groups.get(group_id)
        if group is not None:
            group.__class__ = OwnerlessGroup
        return super().commit(group_id, *given, **named)


class KeepsOldOwners(GroupsState):
    """Who had to give up a partition keeps others from it until somebody has it."""

    def apply(self, fact) -> None:
        group = self.groups.get(fact.group_id)
        old = self.__dict__.setdefault("old", {}).setdefault(fact.group_id, {})
        if group is not None:
            old.update(group.owners)
        super().apply(fact)
        if isinstance(fact, GenerationAssigned):
            self.groups[fact.group_id].owners = old | self.groups[fact.group_id].owners


class CommitAckedAtOnce(LaneGroups):
    async def settled(self, group_id):
        return None


class AssignmentToldAtOnce(LaneGroups):
    def _barrier(self, group_id):
        return None


class GivesWhatIsOwned(ConsumerGroup):
    def _reconcile(self, member_id, before, reported):
        target = self.durable.target(member_id)
        after = reconciled(before, target, reported, lambda partition: True)
        if after != before:
            self._outbox.decide(reconciled_fact(self.group_id, member_id, after))
        return after


class TellsTheTarget(ConsumerGroup):
    """What a member is to own some day is told as what it owns."""

    def heartbeat(self, request, member_id, caller, topics, now):
        response = super().heartbeat(request, member_id, caller, topics, now)
        if response.assignment is not None:
            response.assignment = assignment(self.durable.target(member_id).partitions)
        return response


def forget_committed_offsets(state: LogState) -> None:
    for group in state.groups.groups.values():
        group.offsets.clear()


class NeverValidates(DataLane):
    def is_valid(self) -> bool:
        return self.failure is None and not self._released


def never_validates(lane: DataLane) -> None:
    lane.__class__ = NeverValidates


# Transactions in a partition's log.


class NothingWasAborted(Transactions):
    __slots__ = ()

    def aborted_within(self, start, end):
        return []


class StableIsTheHighWatermark(Transactions):
    __slots__ = ()

    def last_stable_offset(self, log_start_offset, high_watermark):
        return high_watermark


class StableBeforeTheMarker(Transactions):
    __slots__ = ()

    def end(self, producer_id, first_offset, marker_offset, *, committed):
        super().end(producer_id, first_offset, marker_offset, committed=committed)
        self.publish_end(first_offset)


def bad_transactions(bad: type[Transactions]) -> type[BrokerProcess]:
    class State(LogState):
        def log_of(self, partition: PartitionId) -> PartitionLog:
            log = super().log_of(partition)
            log.transactions.__class__ = bad
            return log

    return log_state(State)


# Coordinators of transactions.


class NoMarkersElsewhere(LaneTransactions):
    def finish(self, transaction) -> None:
        parts = self._parts(transaction)
        here = parts._replace(
            partitions=[each for each in parts.partitions if each[0] is self.lane],
            groups=[each for each in parts.groups if each[0].lane is self.lane],
            elsewhere=[],
        )
        if transaction.marker is not None:
            self._write(here, transaction.marker)
        self.decide(TransactionEnded(transaction.transactional_id, self.now_ms()))


class ZombiesWrite(LaneTransactions):
    def admit(self, append):
        super().admit(append)
        return


def abort_what_was_committed(state: LogState) -> None:
    for transaction in state.transactions.transactions.values():
        if transaction.phase is TransactionPhase.PREPARE_COMMIT and transaction.marker is not None:
            transaction.phase = TransactionPhase.PREPARE_ABORT
            transaction.marker = type(transaction.marker)(
                transaction.marker.producer_id, transaction.marker.producer_epoch, False
            )


# Offsets in transactions.


class OffsetsCountAtOnce(GroupsState):
    def apply(self, fact) -> None:
        super().apply(fact)
        if isinstance(fact, OffsetsCommitted) and fact.producer_id >= 0:
            offsets = {item.partition: item for item in fact.offsets}
            self.groups[fact.group_id].offsets.update(offsets)


class DropsOffsets(Group):
    __slots__ = ()

    def end_transaction(self, fact):
        self.pending.pop(fact.producer_id, None)


class OffsetsAreDropped(GroupsState):
    def apply(self, fact) -> None:
        group = self.groups.get(fact.group_id)
        if group is not None:
            group.__class__ = DropsOffsets
        super().apply(fact)


class Unseen(dict):
    """Offsets of open transactions, which nobody looks at."""

    def values(self):
        return ()


class PendingIsStable(GroupsState):
    def apply(self, fact) -> None:
        super().apply(fact)
        group = self.groups.get(fact.group_id)
        if group is not None and not isinstance(group.pending, Unseen):
            group.pending = Unseen(group.pending)


COORDINATORS: dict[str, type[BrokerProcess]] = {
    "late-acks-count": coordinator(LateAcksCount),
    "old-owners-are-kept": groups_state(KeepsOldOwners),
    "commit-acked-at-once": lane_groups(CommitAckedAtOnce),
    "assignment-told-at-once": lane_groups(AssignmentToldAtOnce),
    "gives-what-is-owned": consumer_groups(GivesWhatIsOwned),
    "tells-the-target": consumer_groups(TellsTheTarget),
    "forgets-committed-offsets": claimed(forget_committed_offsets),
    "coordinator-never-validates": hooked("lanes", never_validates),
    "nothing-was-aborted": bad_transactions(NothingWasAborted),
    "stable-is-the-high-watermark": bad_transactions(StableIsTheHighWatermark),
    "stable-before-the-marker": bad_transactions(StableBeforeTheMarker),
    "no-markers-elsewhere": lane_transactions(NoMarkersElsewhere),
    "zombies-write": lane_transactions(ZombiesWrite),
    "aborts-what-was-committed": claimed(abort_what_was_committed),
    "tears-what-was-committed": claimed(abort_what_was_committed),
    "offsets-count-at-once": groups_state(OffsetsCountAtOnce),
    "offsets-are-dropped": groups_state(OffsetsAreDropped),
    "pending-is-stable": groups_state(PendingIsStable),
}
