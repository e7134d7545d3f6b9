"""How members reach their target: never two owners of one partition, whatever happens."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.consumer_groups import Client, ConsumerWorld, settle
from tests.support.groups import TOPIC, TOPIC_ID

from holdfast.groups.consumer.reconciliation import (
    MemberStanding,
    MemberState,
    Target,
    by_topic,
    flat,
    reconciled,
)
from holdfast.identifiers import PartitionId


def these(*numbers: int) -> frozenset[PartitionId]:
    return frozenset(PartitionId(TOPIC_ID, n) for n in numbers)


def free(_: PartitionId) -> bool:
    return True


def taken(_: PartitionId) -> bool:
    return False


def test_a_member_keeps_its_epoch_until_it_has_given_up_what_it_must():
    before = MemberStanding(5, 4, MemberState.STABLE, these(0, 1))
    waiting = reconciled(before, Target(8, these(1, 2)), these(0, 1), free)
    assert waiting == MemberStanding(5, 4, MemberState.UNREVOKED_PARTITIONS, these(1), these(0))
    target = Target(8, these(1, 2))
    assert reconciled(waiting, target, None, free) == waiting
    assert reconciled(waiting, target, these(0), free) == waiting
    done = reconciled(waiting, target, these(1), free)
    assert (done.member_epoch, done.state, done.owned) == (8, MemberState.STABLE, these(1, 2))


def test_what_others_own_is_waited_for_in_the_new_epoch():
    before = MemberStanding(5, 4, MemberState.STABLE, these(0))
    waiting = reconciled(before, Target(6, these(0, 1)), None, taken)
    assert waiting == MemberStanding(6, 5, MemberState.UNRELEASED_PARTITIONS, these(0))
    done = reconciled(waiting, Target(6, these(0, 1)), None, free)
    assert done == MemberStanding(6, 5, MemberState.STABLE, these(0, 1))


def test_what_a_member_never_heard_of_need_not_be_given_up():
    before = MemberStanding(5, 4, MemberState.STABLE, these(0, 1))
    after = reconciled(before, Target(6, these(0)), these(0), taken)
    assert after == MemberStanding(6, 5, MemberState.STABLE, these(0))


def test_a_target_that_goes_back_while_partitions_are_given_up_gives_them_again():
    before = MemberStanding(5, 4, MemberState.UNREVOKED_PARTITIONS, these(1), these(0))
    after = reconciled(before, Target(7, these(0, 1)), these(1), taken)
    assert (after.state, after.assigned) == (MemberState.STABLE, these(0, 1))


def test_partitions_are_grouped_by_topic_and_back():
    assert flat(by_topic(these(3, 1, 2))) == these(1, 2, 3)


def check_owners(world: ConsumerWorld, clients: list[Client]) -> None:
    """No partition is in two hands: as clients believe, and as the coordinator knows."""
    held = Counter(p for client in clients for p in client.owned)
    assert not [p for p, count in held.items() if count > 1]
    group = world.coordinator.consumer("payments")
    if group is None:
        return
    durable = group.durable
    owned = Counter(p for i in durable.members for p in durable.standing(i).owned)
    assert not [p for p, count in owned.items() if count > 1]
    assert set(owned) == set(durable.owners)
    for client in clients:
        if client.member_id in durable.members:
            assert client.owned <= durable.standing(client.member_id).owned


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["beat", "beat", "beat", "quiet", "lost", "leave", "rejoin", "static", "crash"]
            + ["torn", "snapshot", "grow", "shrink", "subscribe", "expire"]
        ),
        st.integers(0, 3),
    ),
    max_size=60,
)


def follow(world: ConsumerWorld, clients: list[Client], step: str, which: int) -> None:
    client = clients[which]
    match step:
        case "beat":
            client.beat()
        case "quiet":
            if client.epoch > 0:
                client.quiet_beat()
        case "lost":
            client.lost()
        case "leave":
            client.leave()
        case "rejoin":
            client.abandon()
            client.beat()
        case "static":
            client.leave(-2 if client.instance is not None else -1)
            client.member_id += "'"  # a new process
        case "torn":
            # The coordinator dies before all that it decided is durable: no answer has left.
            durable = len(world.facts)
            for other in (client, *clients):
                other.lost()
            del world.facts[durable + 2 * which :]
            world.crash()
        case "crash":
            world.crash()
        case "snapshot":
            world.crash_onto_a_snapshot()
        case "grow":
            world.have({TOPIC: 4 + which, "other": 3})
        case "shrink":
            world.have({TOPIC: 4 + which})
        case "subscribe":
            client.topics = [TOPIC, "other"] if len(client.topics) == 1 else [TOPIC]
        case _:
            # Its session ends at the coordinator; the client knows that its own did, too.
            for other in clients:
                if other is not client and other.epoch > 0:
                    other.beat()
            client.abandon()
            world.wait(30)
            for other in clients:
                if other is not client and other.epoch > 0:
                    other.beat()
            world.wait(20)


@settings(max_examples=150, deadline=None)
@given(steps=STEPS)
def test_no_schedule_gives_a_partition_to_two_and_all_reach_the_target(
    steps: list[tuple[str, int]],
):
    world = ConsumerWorld()
    clients = [Client(world, "a"), Client(world, "b"), Client(world, "c", instance="one")]
    clients.append(Client(world, "d", topics=[TOPIC, "other"]))
    for step, which in steps:
        follow(world, clients, step, which)
        check_owners(world, clients)
    for _ in range(6):
        for client in clients:
            client.beat()
            check_owners(world, clients)
    world.wait(50)  # whoever is a member and no client any more is fenced out
    settle(*clients, rounds=8)
    check_owners(world, clients)
    durable = world.group().durable
    assert world.group().phase.value == "Stable"
    assert set(durable.members) == {client.member_id for client in clients}
    for client in clients:
        assert client.owned == durable.targets[client.member_id]
    wanted = {p for c in clients for p in durable.targets[c.member_id]}
    assert wanted == set(durable.owners)


@settings(max_examples=50, deadline=None)
@given(steps=STEPS)
def test_facts_and_snapshot_make_the_same_group(steps: list[tuple[str, int]]):
    world = ConsumerWorld()
    clients = [Client(world, i, instance="one" if i == "c" else None) for i in "abcd"]
    for step, which in steps:
        follow(world, clients, step, which)
    if not world.facts:
        return

    def seen() -> object:
        durable = world.group().durable
        standings = {i: durable.standing(i) for i in durable.members}
        epochs = durable.group_epoch, durable.assignment_epoch, durable.assignor
        return durable.members, standings, durable.targets, durable.owners, epochs

    before = seen()
    world.crash_onto_a_snapshot()
    assert seen() == before
    world.crash()
    assert seen() == before
