"""An index of a history that all checkers use: which value was seen at which offset, and when.

Pure. Owns no rule: it only rearranges what the history says.
"""

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.verify.history import (
    Call,
    DeleteRecords,
    DeleteTopic,
    Fetch,
    Fetched,
    GivenUp,
    History,
    ListOffsets,
    Outcome,
    Partition,
    Produce,
    Produced,
    Value,
)
from holdfast.verify.vocabulary import NO_TRANSACTION

FOR_EVER = 1 << 62
COLD = FOR_EVER
"""The event number of the final cold read, which is after all other events."""

BatchIdentity = tuple[int, int, int] | tuple[int]
"""(producer id, epoch, sequence) of an idempotent batch; (event of the invocation,) of any
other."""


class Answered(NamedTuple):
    """A Produce call that was ok, with its operation and result."""

    call: Call
    produce: Produce
    produced: Produced


class Batch:
    """All attempts to send one record batch."""

    __slots__ = ("acks", "first_invoked", "identity", "may_have_landed", "produce", "tries")

    def __init__(self, identity: BatchIdentity, produce: Produce) -> None:
        self.identity = identity
        self.produce = produce
        self.tries: list[Call] = []
        self.acks: list[Answered] = []
        self.first_invoked = FOR_EVER
        self.may_have_landed = False


@dataclasses.dataclass(slots=True, kw_only=True)
class PartitionKnowledge:
    """Everything that the history says about one partition."""

    partition: Partition
    batches: list[Batch] = dataclasses.field(default_factory=list[Batch])
    values_at: dict[int, dict[Value, int]] = dataclasses.field(
        default_factory=dict[int, dict[Value, int]]
    )
    """offset -> value -> the first event that shows it there."""
    offsets_of: dict[Value, set[int]] = dataclasses.field(default_factory=dict[Value, set[int]])
    queries: list[Call] = dataclasses.field(default_factory=list[Call])
    """Fetch, ListOffsets and DeleteRecords calls, in the order of their invocation."""
    deletes: list[tuple[int, int]] = dataclasses.field(default_factory=list[tuple[int, int]])
    """(event, offset) of each DeleteRecords call that may have taken effect."""
    given_up: list[GivenUp] = dataclasses.field(default_factory=list[GivenUp])
    """Offsets that the partition gave up, if it may do so: the records there are gone."""
    deleted_at: int = FOR_EVER
    """The event of the first request to delete the topic that was not definitely refused."""

    @property
    def is_deleted(self) -> bool:
        return self.deleted_at < FOR_EVER

    def is_given_up(self, offset: int) -> bool:
        return any(hole.base_offset <= offset <= hole.last_offset for hole in self.given_up)

    def see(self, offset: int, value: Value, event: int) -> None:
        self.values_at.setdefault(offset, {}).setdefault(value, event)
        self.offsets_of.setdefault(value, set()).add(offset)

    def asked_log_start(self, before_event: int) -> int:
        """Return the highest log start that clients had asked for before an event."""
        return max((to for event, to in self.deletes if event < before_event), default=0)


class Knowledge:
    """A whole history, indexed by partition."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.partitions: dict[Partition, PartitionKnowledge] = {}
        self.transactional_values: set[Value] = set()
        # The key has the values, too: after a definite error, other records get the sequence.
        self._batches: dict[tuple[Partition, BatchIdentity, tuple[Value, ...]], Batch] = {}
        deleted_topics: dict[str, int] = {}
        for call in history.calls:
            operation = call.operation
            match operation:
                case Produce():
                    self._take_produce(call, operation)
                case Fetch() | ListOffsets() | DeleteRecords():
                    self._take_query(call, operation)
                case DeleteTopic():
                    if call.outcome is not Outcome.FAIL:
                        deleted_topics.setdefault(operation.topic, call.invoked)
                case _:
                    pass
        for partition, cold in history.cold.items():
            self._see_all(partition, cold.records, COLD)
        for landing in history.landings:
            for hole in landing.given_up:
                if history.rules_of(hole.partition).unclean:
                    self.of(hole.partition).given_up.append(hole)
        for partition, known in self.partitions.items():
            known.deleted_at = deleted_topics.get(partition.rpartition("/")[0], FOR_EVER)
            # Later answers do not count: the log may have started again, or be gone.
            known.queries = [c for c in known.queries if c.completed < known.deleted_at]

    def of(self, partition: Partition) -> PartitionKnowledge:
        known = self.partitions.get(partition)
        if known is None:
            known = self.partitions[partition] = PartitionKnowledge(partition=partition)
        return known

    def _take_produce(self, call: Call, produce: Produce) -> None:
        known = self.of(produce.partition)
        identity: BatchIdentity = (call.invoked,)
        if produce.producer_id >= 0:
            identity = (produce.producer_id, produce.producer_epoch, produce.base_sequence)
        key = (produce.partition, identity, produce.values)
        batch = self._batches.get(key)
        if batch is None:
            batch = self._batches[key] = Batch(identity, produce)
            known.batches.append(batch)
        batch.tries.append(call)
        if produce.transaction != NO_TRANSACTION:
            self.transactional_values.update(produce.values)
        batch.first_invoked = min(batch.first_invoked, call.invoked)
        batch.may_have_landed |= call.outcome is not Outcome.FAIL
        if call.outcome is Outcome.OK and isinstance(call.result, Produced):
            batch.acks.append(Answered(call, produce, call.result))
            offset = call.result.base_offset
            for index, value in enumerate(produce.values):
                known.see(offset + index, value, call.completed)

    def _take_query(self, call: Call, query: Fetch | ListOffsets | DeleteRecords) -> None:
        known = self.of(query.partition)
        known.queries.append(call)
        if isinstance(query, DeleteRecords) and call.outcome is not Outcome.FAIL:
            known.deletes.append((call.invoked, query.before))
        if isinstance(call.result, Fetched):
            self._see_all(query.partition, call.result.records, call.completed)

    def _see_all(
        self, partition: Partition, records: Iterable[tuple[int, Value]], event: int
    ) -> None:
        known = self.of(partition)
        for offset, value in records:
            known.see(offset, value, event)
