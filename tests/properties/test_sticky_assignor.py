"""The assignor cooperative-sticky: balance, stickiness and cooperation over any group."""

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.client.membership.sticky import Assignments, StickyMember, assign, balance, owners
from holdfast.protocol.consumer_protocol import TopicPartition

TOPICS = ("orders", "payments", "refunds")
ROUNDS_MAX = 3

counts_of_topics = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 7), min_size=1)
subscriptions = st.frozensets(st.sampled_from(TOPICS), min_size=1)
partitions = st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 8))
names = st.sampled_from([f"member-{number}" for number in range(6)])
claims = st.builds(
    StickyMember, subscriptions, st.frozensets(partitions, max_size=10), st.integers(-1, 3)
)
groups = st.dictionaries(names, claims, min_size=1)

Group = dict[str, StickyMember]
Counts = dict[str, int]


def everything(group: Group, counts: Counts) -> set[TopicPartition]:
    """All partitions that somebody is subscribed to."""
    wanted = {topic for claim in group.values() for topic in claim.topics}
    return {TopicPartition(t, n) for t in wanted for n in range(counts.get(t, 0))}


def next_round(group: Group, given: Assignments, generation: int) -> Group:
    """All have taken what they were given, and join again."""
    return {i: StickyMember(claim.topics, given[i], generation) for i, claim in group.items()}


def settled(group: Group, counts: Counts) -> Group:
    for generation in range(10, 10 + ROUNDS_MAX):
        group = next_round(group, assign(group, counts), generation)
    return group


def is_given_once(given: Assignments) -> bool:
    together = [partition for held in given.values() for partition in held]
    return len(together) == len(set(together))


@given(group=groups, counts=counts_of_topics)
def test_no_partition_is_given_twice_nor_to_one_that_is_not_subscribed(
    group: Group, counts: Counts
):
    given = assign(group, counts)
    assert given.keys() == group.keys()
    assert is_given_once(given)
    for member_id, held in given.items():
        assert held <= everything({member_id: group[member_id]}, counts)


@given(group=groups, counts=counts_of_topics)
def test_nothing_is_given_while_another_says_that_it_owns_it(group: Group, counts: Counts):
    for member_id, held in assign(group, counts).items():
        others = [claim.owned for i, claim in group.items() if i != member_id]
        assert not any(held & owned for owned in others)


@given(group=groups, counts=counts_of_topics)
def test_all_is_given_in_one_round_where_nobody_owns_anything(group: Group, counts: Counts):
    fresh = {i: StickyMember(claim.topics) for i, claim in group.items()}
    given = assign(fresh, counts)
    assert set().union(*given.values()) == everything(group, counts)


@given(group=groups, counts=counts_of_topics)
def test_with_one_subscription_for_all_nobody_has_more_than_one_above_another(
    group: Group, counts: Counts
):
    alike = {i: claim._replace(topics=frozenset(TOPICS)) for i, claim in group.items()}
    sizes = [len(held) for held in balance(alike, counts).values()]
    assert max(sizes) - min(sizes) <= 1


@given(group=groups, counts=counts_of_topics)
def test_no_single_move_would_make_it_more_even(group: Group, counts: Counts):
    given = balance(group, counts)
    for giver, held in given.items():
        for taker, claim in group.items():
            if any(partition.topic in claim.topics for partition in held):
                assert len(held) - len(given[taker]) <= 1 or giver == taker


@given(group=groups, counts=counts_of_topics)
def test_with_one_subscription_for_all_only_what_is_above_a_fair_share_moves(
    group: Group, counts: Counts
):
    alike = {i: claim._replace(topics=frozenset(TOPICS)) for i, claim in group.items()}
    held, given = owners(alike, counts), balance(alike, counts)
    total = len(everything(alike, counts))
    share, extra = divmod(total, len(alike))
    over = sorted((max(0, len(owned) - share) for owned in held.values()), reverse=True)
    above_by_right = sum(1 for surplus in over if surplus > 0)
    moves_min = sum(over) - min(extra, above_by_right)
    moves = sum(len(owned - given[i]) for i, owned in held.items())
    assert moves == moves_min


@settings(max_examples=200)
@given(group=groups, counts=counts_of_topics)
def test_a_few_rounds_give_everything_and_then_nothing_moves(group: Group, counts: Counts):
    at_rest = settled(group, counts)
    given = assign(at_rest, counts)
    assert set().union(*given.values()) == everything(group, counts)
    assert given == {i: claim.owned for i, claim in at_rest.items()}


@settings(max_examples=200)
@given(group=groups, counts=counts_of_topics, leaver=st.integers(0, 5))
def test_when_a_member_goes_the_others_keep_what_they_have(
    group: Group, counts: Counts, leaver: int
):
    at_rest = settled(group, counts)
    gone = sorted(at_rest)[leaver % len(at_rest)]
    left = {
        i: claim._replace(topics=frozenset(TOPICS)) for i, claim in at_rest.items() if i != gone
    }
    sizes = [len(claim.owned) for claim in left.values()]
    if not left or max(sizes) - min(sizes) > 1:
        return
    given = assign(left, counts)
    assert all(claim.owned <= given[i] for i, claim in left.items())


def test_who_claims_in_an_older_generation_is_no_owner_and_gives_up_first():
    orders = frozenset({"orders"})
    both = frozenset({TopicPartition("orders", 0), TopicPartition("orders", 1)})
    group = {"late": StickyMember(orders, both, 4), "new": StickyMember(orders, frozenset(), 5)}
    given = assign(group, {"orders": 2})
    assert balance(group, {"orders": 2}) != {"late": both, "new": frozenset()}
    assert all(len(held) <= 1 for held in given.values())
    assert given["new"] == frozenset()


def test_what_two_claim_in_one_generation_is_given_to_neither_until_one_has_let_go():
    orders, disputed = frozenset({"orders"}), frozenset({TopicPartition("orders", 0)})
    group = {"a": StickyMember(orders, disputed, 5), "b": StickyMember(orders, disputed, 5)}
    given = assign(group, {"orders": 1})
    assert given == {"a": frozenset(), "b": frozenset()}
    again = assign(next_round(group, given, 6), {"orders": 1})
    assert sorted(len(held) for held in again.values()) == [0, 1]


def test_a_thousand_partitions_over_fifty_members_move_only_to_the_one_that_is_new():
    topics = frozenset({"orders"})
    group = settled({f"m{n:02}": StickyMember(topics) for n in range(50)}, {"orders": 1000})
    group["newcomer"] = StickyMember(topics)
    given = balance(group, {"orders": 1000})
    moved = sum(len(claim.owned - given[i]) for i, claim in group.items())
    assert moved == len(given["newcomer"]) == 19


def test_five_thousand_partitions_of_one_member_go_to_a_hundred_more():
    topics, counts = frozenset(TOPICS), dict.fromkeys(TOPICS, 1700)
    alone = settled({"alone": StickyMember(topics)}, counts)
    group = alone | {f"m{n:02}": StickyMember(topics) for n in range(101)}
    given = balance(group, counts)
    assert {len(held) for held in given.values()} == {50}
    assert given["alone"] <= alone["alone"].owned
    assert assign(group, counts)["m00"] == frozenset()
