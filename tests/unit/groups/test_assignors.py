"""The assignors of consumer groups: complete, balanced, sticky, co-partitioned."""

from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.groups.consumer.assignors import (
    Subscriber,
    Targets,
    assign_range,
    assign_uniform,
)
from holdfast.identifiers import PartitionId

IDS = [UUID(int=i + 1) for i in range(4)]


@st.composite
def groups(draw: st.DrawFn, *, is_even: bool = False) -> tuple[list[Subscriber], dict[UUID, int]]:
    partitions = {t: draw(st.integers(1, 9)) for t in IDS[: draw(st.integers(1, 4))]}
    count = draw(st.integers(1, 6))
    every = [PartitionId(t, n) for t, size in partitions.items() for n in range(size)]
    before = {p: draw(st.integers(-1, count - 1)) for p in every}
    # What a target was made for may be gone: a partition, or a topic.
    before[PartitionId(UUID(int=99), 0)] = 0
    members: list[Subscriber] = []
    for i in range(count):
        topics = partitions if is_even else draw(st.sets(st.sampled_from([*partitions])))
        target = frozenset(p for p, owner in before.items() if owner == i)
        members.append(Subscriber(f"m{i}", None, frozenset(topics), target))
    return members, partitions


def check_complete(
    members: list[Subscriber], partitions: dict[UUID, int], targets: Targets
) -> None:
    assert set(targets) == {m.member_id for m in members}
    owners = Counter(p for target in targets.values() for p in target)
    wanted = {t for m in members for t in m.topics}
    assert owners == Counter(
        PartitionId(t, n) for t, size in partitions.items() if t in wanted for n in range(size)
    )
    for member in members:
        assert {p.topic_id for p in targets[member.member_id]} <= member.topics


@pytest.mark.parametrize("assign", [assign_uniform, assign_range])
@given(group=groups())
def test_every_partition_of_a_subscribed_topic_has_one_owner_that_wants_it(assign, group):
    members, partitions = group
    check_complete(members, partitions, assign(members, partitions))


@given(group=groups(is_even=True))
def test_uniform_is_balanced_within_one_where_all_want_the_same(group):
    members, partitions = group
    sizes = [len(target) for target in assign_uniform(members, partitions).values()]
    assert max(sizes) - min(sizes) <= 1


@given(group=groups())
def test_no_single_move_makes_a_uniform_assignment_more_even(group):
    members, partitions = group
    targets = assign_uniform(members, partitions)
    for giver in members:
        for topic_id in {p.topic_id for p in targets[giver.member_id]}:
            for taker in members:
                if topic_id in taker.topics:
                    load = len(targets[giver.member_id]), len(targets[taker.member_id])
                    assert load[0] - load[1] <= 1


def moved(before: Targets, after: Targets) -> int:
    """How many partitions have another owner than they had."""
    return sum(len(target - after.get(i, frozenset())) for i, target in before.items())


def with_targets(members: list[Subscriber], targets: Targets) -> list[Subscriber]:
    return [m._replace(target=targets[m.member_id]) for m in members]


@given(group=groups(is_even=True))
def test_one_more_member_moves_no_more_than_its_share(group):
    members, partitions = group
    before = assign_uniform(members, partitions)
    members = with_targets(members, before)
    newcomer = Subscriber("m-new", None, frozenset(partitions), frozenset())
    after = assign_uniform([*members, newcomer], partitions)
    assert moved(before, after) == len(after["m-new"])
    assert len(after["m-new"]) == sum(partitions.values()) // (len(members) + 1)


@given(group=groups(is_even=True), gone=st.integers(0, 5))
def test_one_member_less_moves_only_what_it_had(group, gone: int):
    members, partitions = group
    before = assign_uniform(members, partitions)
    left = with_targets(members, before)
    del left[gone % len(left)]
    after = assign_uniform(left, partitions)
    assert moved({m.member_id: before[m.member_id] for m in left}, after) == 0


@given(group=groups())
def test_a_uniform_assignment_that_nothing_has_changed_stays(group):
    members, partitions = group
    targets = assign_uniform(members, partitions)
    assert assign_uniform(with_targets(members, targets), partitions) == targets


def test_range_gives_the_same_numbers_of_co_partitioned_topics_to_one_member():
    partitions = {IDS[0]: 5, IDS[1]: 5}
    members = [Subscriber(i, None, frozenset(partitions), frozenset()) for i in "ab"]
    targets = assign_range(members, partitions)
    for topic_id in partitions:
        assert {p.partition for p in targets["a"] if p.topic_id == topic_id} == {0, 1, 2}
        assert {p.partition for p in targets["b"] if p.topic_id == topic_id} == {3, 4}


def test_range_goes_by_instance_ids_so_that_a_restart_moves_nothing():
    partitions = {IDS[0]: 4}
    wants = frozenset(partitions)
    before = [
        Subscriber("z", "one", wants, frozenset()),
        Subscriber("a", "two", wants, frozenset()),
    ]
    after = [Subscriber("b", "one", wants, frozenset()), Subscriber("a", "two", wants, frozenset())]
    assert assign_range(before, partitions)["z"] == assign_range(after, partitions)["b"]
