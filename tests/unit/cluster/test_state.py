"""The control lane's state: what is not durable cannot be used, and replay equals the live path."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from holdfast.cluster.facts import (
    BrokerRegistered,
    ClusterCreated,
    ControlFact,
    PartitionsAdded,
    ProducerIdsReserved,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
    TopicPurged,
    decode_facts,
    encode_facts,
)
from holdfast.cluster.state import ControlState, ControlStateKind
from holdfast.identifiers import PartitionId

A, B = UUID(int=1), UUID(int=2)


def state_of(*facts: ControlFact) -> ControlState:
    state = ControlState()
    for fact in facts:
        state.apply(fact)
        state.publish([fact])
    return state


CREATED = (ClusterCreated("c", 4), TopicCreated(A, "a", [1, 2], {"retention.ms": "5"}))


def test_a_topic_can_be_used_only_when_its_creation_is_durable():
    state = state_of(CREATED[0])
    state.apply(CREATED[1])
    assert state.topic_named("a") is None and state.usable(A) is None
    assert "a" in state.names
    state.publish([CREATED[1]])
    topic = state.topic_named("a")
    assert topic is not None and [topic.lane_of(i) for i in (-1, 0, 1, 2)] == [None, 1, 2, None]


def test_added_partitions_can_be_used_only_when_they_are_durable():
    state = state_of(*CREATED)
    more = PartitionsAdded(A, [3])
    state.apply(more)
    topic = state.topics[A]
    assert topic.lane_of(2) is None
    assert topic.partition_ids()[2] == PartitionId(A, 2)
    state.publish([more])
    assert topic.lane_of(2) == 3


def test_a_deleted_topic_is_kept_until_it_is_purged_and_its_name_is_free_at_once():
    state = state_of(*CREATED, TopicDeleted(A))
    assert state.topic_named("a") is None and state.usable(A) is None
    assert A in state.deleted
    for fact in (TopicCreated(B, "a", [1], {}), TopicPurged(A)):
        state.apply(fact)
        state.publish([fact])
    assert state.names == {"a": B} and state.deleted == {}


def test_deleting_the_old_topic_of_a_name_leaves_the_new_one():
    state = state_of(*CREATED, TopicDeleted(A), TopicCreated(B, "a", [1], {}), TopicPurged(A))
    topic = state.topic_named("a")
    assert topic is not None and topic.topic_id == B


def test_reserved_producer_ids_never_go_back():
    state = state_of(ProducerIdsReserved(2_000), ProducerIdsReserved(1_000))
    assert state.next_producer_id == 2_000


def test_new_partitions_go_where_the_fewest_are():
    state = state_of(*CREATED)
    assert state.spread(4) == [3, 4, 1, 2]
    assert sorted(ControlState(lanes=3).spread(9)) == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_facts_are_read_back_as_they_were_written():
    facts = [
        *CREATED,
        BrokerRegistered(1, "h", 2, None),
        BrokerRegistered(1, "h", 2, "rack"),
        PartitionsAdded(A, [1]),
        TopicConfigured(A, {}),
        TopicDeleted(A),
        TopicPurged(A),
        ProducerIdsReserved(7),
    ]
    assert decode_facts(encode_facts(facts)) == facts


def test_what_is_in_a_snapshot_can_be_used_though_it_was_taken_before_it_was_durable():
    state = state_of(CREATED[0])
    state.apply(CREATED[1])
    recovered = ControlStateKind().decode(state.encode())
    topic = recovered.topic_named("a")
    assert topic is not None and topic.partitions == 2


STEPS = st.lists(st.tuples(st.sampled_from("cpdfui"), st.integers(0, 3)), max_size=30)


def fact_of(state: ControlState, kind: str, i: int, serial: int) -> ControlFact | None:
    """A fact that could be decided now."""
    topic_id = state.names.get(f"t{i}")
    match kind:
        case "c":
            created = TopicCreated(UUID(int=serial + 10), f"t{i}", state.spread(i + 1), {})
            return created if topic_id is None else None
        case "p":
            return PartitionsAdded(topic_id, state.spread(2)) if topic_id else None
        case "d":
            return TopicDeleted(topic_id) if topic_id else None
        case "f":
            return TopicConfigured(topic_id, {"x": str(serial)}) if topic_id else None
        case "u":
            gone = next(iter(state.deleted), None)
            return TopicPurged(gone) if gone else None
        case _:
            return ProducerIdsReserved(serial * 10)


@given(steps=STEPS, cuts=st.sets(st.integers(0, 30)))
def test_a_state_recovered_from_any_snapshot_is_the_state_that_was_held(
    steps: list[tuple[str, int]], cuts: set[int]
):
    live = state_of(ClusterCreated("c", 3))
    recovered = ControlStateKind().decode(live.encode())
    for serial, (kind, i) in enumerate(steps):
        fact = fact_of(live, kind, i, serial)
        if fact is not None:
            (again,) = decode_facts(encode_facts([fact]))
            for state in (live, recovered):
                state.apply(again)
                state.publish([again])
        if serial in cuts:
            recovered = ControlStateKind().decode(recovered.encode())
        assert recovered.spread(5) == live.spread(5)
        assert recovered.encode() == live.encode()
