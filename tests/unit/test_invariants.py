"""The invariants of the cores: each one holds in a sound state, and is broken by one wrong step."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from holdfast.cluster import invariants as of_clusters
from holdfast.cluster.facts import ClusterCreated, TopicCreated
from holdfast.cluster.state import ControlState
from holdfast.groups import invariants as of_groups
from holdfast.groups.consumer.state import ConsumerState
from holdfast.groups.state import Generation, Group
from holdfast.identifiers import PartitionId
from holdfast.log import invariants as of_logs
from holdfast.log.facts import Appended, SegmentRef
from holdfast.log.partition import EpochStart, PartitionLog, PartitionRun
from holdfast.log.transactions import OpenTransaction
from holdfast.transactions import invariants as of_transactions
from holdfast.transactions.state import PendingMarker, Transaction, TransactionPhase

P0 = PartitionId(UUID(int=1), 0)


def sound_log() -> PartitionLog:
    log = PartitionLog(P0)
    fact = Appended(P0, 0, 9, 100, 1_000, 7, -1, -1, -1, 1_000, False)
    log.append(fact, 0)
    log.add_run(PartitionRun(0, 9, 1, 0, 100, 1_000))
    log.publish(fact)
    return log


def high_watermark_past_the_end(log: PartitionLog) -> None:
    log.high_watermark = 11


def start_before_its_decision(log: PartitionLog) -> None:
    log.log_start_offset = 5


def published_and_not_stored(log: PartitionLog) -> None:
    log.runs.pop()


def run_away_from_its_segment(log: PartitionLog) -> None:
    log.segments = [segment("a", -10, -5)]


def gap_between_segments(log: PartitionLog) -> None:
    log.runs.pop()
    log.segments = [segment("a", 0, 4), segment("b", 6, 9)]


def epoch_that_falls(log: PartitionLog) -> None:
    log.epochs = [EpochStart(3, 0), EpochStart(2, 5)]


def transaction_past_the_end(log: PartitionLog) -> None:
    log.transactions.open[7] = OpenTransaction(0, 10, 1_000)


def transaction_of_an_unknown_producer(log: PartitionLog) -> None:
    log.transactions.open[7] = OpenTransaction(0, 3, 1_000)


def segment(name: str, base: int, last: int) -> SegmentRef:
    return SegmentRef(base, last, 100, 1_000, name, 0)


@pytest.mark.parametrize(
    "break_it",
    [
        high_watermark_past_the_end,
        start_before_its_decision,
        published_and_not_stored,
        run_away_from_its_segment,
        gap_between_segments,
        epoch_that_falls,
        transaction_past_the_end,
        transaction_of_an_unknown_producer,
    ],
)
def test_a_log_with_one_thing_wrong_is_named(break_it: Callable[[PartitionLog], None]):
    log = sound_log()
    assert list(of_logs.problems(log)) == []
    break_it(log)
    assert list(of_logs.problems(log))


def classic_and_consumer_at_once(group: Group) -> None:
    group.generation = Generation(
        number=1,
        protocol_type="consumer",
        protocol_name="range",
        leader=None,
        members={},
        formed_ms=0,
    )


def owner_who_is_no_member(group: Group) -> None:
    assert group.consumers is not None
    group.consumers.owners[P0] = "stranger"


def target_for_a_stranger(group: Group) -> None:
    assert group.consumers is not None
    group.consumers.targets["stranger"] = frozenset({P0})


def assignment_ahead_of_its_group(group: Group) -> None:
    assert group.consumers is not None
    group.consumers.assignment_epoch = 1


@pytest.mark.parametrize(
    "break_it",
    [
        classic_and_consumer_at_once,
        owner_who_is_no_member,
        target_for_a_stranger,
        assignment_ahead_of_its_group,
    ],
)
def test_a_group_with_one_thing_wrong_is_named(break_it: Callable[[Group], None]):
    group = Group("g")
    group.consumers = ConsumerState()
    assert list(of_groups.problems(group)) == []
    break_it(group)
    assert list(of_groups.problems(group))


def test_a_target_that_gives_a_partition_to_two_members_is_named():
    group = Group("g")
    group.consumers = ConsumerState()
    group.consumers.members = {"a": Any, "b": Any}  # only the ids are asked for
    group.consumers.targets = {"a": frozenset({P0}), "b": frozenset({P0})}
    assert "to two members" in (of_groups.targets_name_members(group) or "")


def transaction(phase: TransactionPhase, **fields: Any) -> Transaction:
    return Transaction(
        transactional_id="t",
        producer_id=7,
        producer_epoch=3,
        timeout_ms=1,
        updated_ms=1,
        phase=phase,
        **fields,
    )


@pytest.mark.parametrize(
    "known",
    [
        transaction(TransactionPhase.PREPARE_COMMIT),
        transaction(TransactionPhase.ONGOING, marker=PendingMarker(7, 2, True)),
        transaction(TransactionPhase.COMPLETE_ABORT, groups={"g"}),
        transaction(TransactionPhase.PREPARE_ABORT, marker=PendingMarker(7, 4, False)),
    ],
)
def test_a_transactional_id_with_one_thing_wrong_is_named(known: Transaction):
    assert list(of_transactions.problems(known))


@pytest.mark.parametrize(
    "known",
    [
        transaction(TransactionPhase.EMPTY),
        transaction(TransactionPhase.ONGOING, partitions={P0}),
        transaction(TransactionPhase.PREPARE_ABORT, marker=PendingMarker(7, 3, False)),
    ],
)
def test_a_sound_transactional_id_is_not_named(known: Transaction):
    assert not list(of_transactions.problems(known))


def sound_cluster() -> ControlState:
    state = ControlState()
    fact = TopicCreated(UUID(int=1), "a", [1, 2], {})
    state.apply(ClusterCreated("c", 3))
    state.apply(fact)
    state.publish([fact])
    return state


def name_of_no_topic(state: ControlState) -> None:
    state.names["b"] = UUID(int=2)


def lane_that_is_not_there(state: ControlState) -> None:
    state.topics[UUID(int=1)].lanes[0] = 4


def more_seen_than_decided(state: ControlState) -> None:
    state.topics[UUID(int=1)].partitions = 3


def load_that_was_not_counted(state: ControlState) -> None:
    state.load[1] = 5


def topic_and_deleted_at_once(state: ControlState) -> None:
    state.deleted = dict(state.topics)


@pytest.mark.parametrize(
    "break_it",
    [
        name_of_no_topic,
        lane_that_is_not_there,
        more_seen_than_decided,
        load_that_was_not_counted,
        topic_and_deleted_at_once,
    ],
)
def test_a_cluster_with_one_thing_wrong_is_named(break_it: Callable[[ControlState], None]):
    state = sound_cluster()
    assert list(of_clusters.problems(state)) == []
    break_it(state)
    assert list(of_clusters.problems(state))
