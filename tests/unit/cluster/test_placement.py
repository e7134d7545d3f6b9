"""Placement: even, the same for all who see the same, and no move without need."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from holdfast.cluster.placement import desired_owners
from holdfast.identifiers import BrokerId, LaneId

Owners = dict[LaneId, BrokerId]
brokers = st.sets(st.integers(0, 9).map(BrokerId), min_size=1, max_size=6)
counts = st.integers(1, 24)


def lanes_of(count: int) -> list[LaneId]:
    return [LaneId(number + 1) for number in range(count)]


def place(
    count: int, alive: set[BrokerId], owners: Owners, preferred: Owners | None = None
) -> Owners:
    return desired_owners(lanes_of(count), alive, owners=owners, preferred=preferred or {})


@given(count=counts, before=brokers, alive=brokers)
def test_every_lane_has_an_owner_and_no_broker_has_two_more_than_another(
    count: int, before: set[BrokerId], alive: set[BrokerId]
):
    placed = place(count, alive, place(count, before, {}))
    loads = Counter(placed.values())
    assert set(placed) == set(lanes_of(count)) and set(loads) <= alive
    assert max(loads[b] for b in alive) - min(loads[b] for b in alive) <= 1


@given(count=counts, alive=brokers)
def test_what_is_placed_stays(count: int, alive: set[BrokerId]):
    placed = place(count, alive, {})
    assert place(count, alive, placed) == placed


@given(count=counts, alive=brokers.filter(lambda found: len(found) > 1))
def test_where_a_broker_ends_only_its_lanes_move(count: int, alive: set[BrokerId]):
    placed = place(count, alive, {})
    gone = min(alive)
    after = place(count, alive - {gone}, placed)
    assert all(after[lane] == owner for lane, owner in placed.items() if owner != gone)


@given(count=counts, alive=brokers)
def test_a_broker_that_comes_takes_its_share_and_nothing_else_moves(
    count: int, alive: set[BrokerId]
):
    placed = place(count, alive, {})
    new = BrokerId(100)
    after = place(count, alive | {new}, placed)
    moved = {lane: owner for lane, owner in after.items() if owner != placed[lane]}
    assert set(moved.values()) <= {new}
    assert len(moved) == count // (len(alive) + 1)


@given(count=counts, alive=brokers, owners=st.dictionaries(counts.map(LaneId), st.integers(0, 12)))
def test_two_brokers_that_see_the_same_place_the_same(
    count: int, alive: set[BrokerId], owners: dict[LaneId, int]
):
    known = {lane: BrokerId(owner) for lane, owner in owners.items()}
    one, other = (
        desired_owners(lanes_of(count), seen, owners=known, preferred={})
        for seen in (sorted(alive), sorted(alive, reverse=True))
    )
    assert one == other


def test_a_lane_that_was_moved_by_hand_stays_where_it_was_put_and_the_others_make_room():
    alive = {BrokerId(1), BrokerId(2)}
    placed = place(4, alive, {})
    lane = next(lane for lane, owner in placed.items() if owner == 1)
    after = place(4, alive, placed, {lane: BrokerId(2)})
    assert after[lane] == 2
    assert Counter(after.values()) == {1: 2, 2: 2}


def test_a_lane_that_was_moved_to_a_broker_that_is_gone_is_placed_as_any_other():
    assert place(3, {BrokerId(1)}, {}, {LaneId(1): BrokerId(7)})[LaneId(1)] == 1


def test_without_brokers_nothing_is_placed():
    assert place(3, set(), {}) == {}
