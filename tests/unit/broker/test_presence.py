"""Brokers that do not hear each other see in the store that the others are alive."""

import asyncio
import itertools
import logging

import pytest
from simulation.faults.skewed_environment import SkewedEnvironment
from tests.support.async_tests import simulated
from tests.support.brokers import VALID_MS, pass_time
from tests.support.clusters import SETTLED_S, Several, simulate

from holdfast.broker.broker import Broker
from holdfast.broker.cluster.presence import LEAVE_INTERVAL_S, LOOK_IDLE_S, PREFIX, SEARCH_S
from holdfast.broker.cluster.reachability import REPEAT_S
from holdfast.broker.lanes.claiming import CLOCK_RATE_MARGIN
from holdfast.client.address import Address
from holdfast.cluster.peers import SHOWN_S, SILENCE_S
from holdfast.protocol.message import Message
from holdfast.protocol.messages.peer_ping import PeerPingRequest

WHILE_S = 240.0
LANES = 4
TAKEN_S = SILENCE_S + CLOCK_RATE_MARGIN * VALID_MS / 1000 + 0.5
MOVED_S = VALID_MS / 1000 + SETTLED_S


class Watched:
    """The calls that a broker's store was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    async def __call__(self, operation: str, key: str) -> None:
        self.calls.append((operation, key))

    def count(self, operation: str, prefix: str) -> int:
        return sum(1 for done, key in self.calls if done == operation and key.startswith(prefix))


def epochs(*brokers: Broker) -> dict[int, int]:
    """The leader epoch of each lane, by the broker that serves it: one more for each claim."""
    found = {lane: epoch for broker in brokers for lane, epoch in broker.report().lanes.items()}
    assert sorted(found) == list(range(LANES + 1))
    return found


@pytest.mark.parametrize("brokers", [2, 3])
@simulated
async def test_brokers_that_stop_hearing_each_other_keep_their_lanes(world: Several, brokers: int):
    joined = [await world.join(i + 1) for i in range(brokers)]
    await pass_time(SETTLED_S)
    before = [broker.report().lanes for broker in joined]
    for broker in joined:
        world.silence(broker)
    await pass_time(WHILE_S)
    assert [broker.report().lanes for broker in joined] == before


@simulated
async def test_a_broker_that_ends_where_nobody_hears_another_loses_its_lanes(world: Several):
    first, second = [await world.join(i) for i in (1, 2)]
    await pass_time(SETTLED_S)
    for broker in (first, second):
        world.silence(broker)
    await pass_time(60)
    await world.kill(second)
    await pass_time(SHOWN_S + LEAVE_INTERVAL_S + MOVED_S)
    epochs(first)


@simulated
async def test_a_broker_that_leaves_where_nobody_hears_another_is_not_waited_for(world: Several):
    first, second = [await world.join(i) for i in (1, 2)]
    await pass_time(SETTLED_S)
    for broker in (first, second):
        world.silence(broker)
    await pass_time(60)
    await world.leave(second)
    await pass_time(LEAVE_INTERVAL_S)
    epochs(first)


@simulated
async def test_a_broker_whose_machine_is_gone_loses_its_lanes_within_seconds(world: Several):
    first, second = [await world.join(i) for i in (1, 2)]
    await pass_time(SETTLED_S)
    world.silence(second)  # nobody refuses a connection there
    await world.kill(second)
    world.wires.listening[world.address(second)] = second
    await pass_time(VALID_MS / 1000 * 1.1 + 6)
    epochs(first)


@simulated
async def test_a_report_that_cannot_be_read_does_not_hide_the_others(world: Several):
    """Seed 13671: a byte that is no UTF-8 ended the exchange, and no report was read any more."""
    joined = [await world.join(i + 1) for i in range(2)]
    await pass_time(SETTLED_S)
    before = [broker.report().lanes for broker in joined]
    for broker in joined:
        world.silence(broker)
    await pass_time(60)
    for stranger, body in enumerate([b"", b"{", b'{"host":"\xff"}', b"[]"]):
        await world.store.create(f"{PREFIX}{stranger + 7}/{1:020d}", [body])
    await pass_time(WHILE_S)
    assert [broker.report().lanes for broker in joined] == before


class Stopped(SkewedEnvironment):
    """The clock of a process that can be stopped: for itself, no time passes meanwhile."""

    stopped_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.stopped_s


@simulated
async def test_a_broker_that_is_stopped_in_the_middle_of_a_round_listens_before_it_takes_a_lane(
    world: Several,
):
    """When that round ends, it has heard nobody for long; but it was itself that did not run."""
    clock = Stopped(seed=7, loop=world.loop)
    first = await world.join(1)
    second = await world.join(2, environment=clock)
    await pass_time(SETTLED_S)
    await world.stand_still(first)
    reachability = second.membership.neighbours.reachability
    while not reachability.accepts(first.settings.broker_id, SILENCE_S):
        await pass_time(0.01)

    async def stop_once(own: Address, address: Address, request: Message) -> None:
        if own == world.address(second) and isinstance(request, PeerPingRequest):
            world.wires.before.remove(stop_once)
            clock.stopped_s += SILENCE_S + 1

    world.wires.before.append(stop_once)
    while stop_once in world.wires.before:
        await pass_time(0.01)
        assert not second.coming
    stopped_at = world.loop.time()
    while world.loop.time() < stopped_at + SILENCE_S:
        await pass_time(0.1)
        assert not second.coming
    await pass_time(TAKEN_S)
    epochs(second)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("left", [1, 2, 3])
@simulated
async def test_two_of_three_brokers_that_stand_still_lose_their_lanes_within_ten_seconds(
    world: Several, left: int, seed: int
):
    """Silence, then the wait for the last proofs of their claims, and hardly anything else."""
    joined = {i: await world.join(i) for i in (1, 2, 3)}
    await pass_time(SETTLED_S + seed / 7)  # not always in the same moment of a round
    remaining = joined.pop(left)
    assert len(remaining.report().lanes) < LANES
    await asyncio.gather(*(world.stand_still(broker) for broker in joined.values()))
    stopped_at = world.loop.time()
    while len(remaining.report().lanes) <= LANES:
        await pass_time(0.05)
        assert world.loop.time() - stopped_at < TAKEN_S
    epochs(remaining)


def test_brokers_that_never_reached_each_other_take_each_lane_once_and_are_named_again_and_again(
    caplog: pytest.LogCaptureFixture,
):
    """Each starts alone, as far as it can see: the addresses of all of them are wrong."""

    async def test(world: Several) -> None:
        joined: list[Broker] = []
        for i in (1, 2, 3):
            broker = world.make(i)
            world.hang_up(broker)
            async with asyncio.timeout(60):
                await broker.start()
            joined.append(broker)
        await pass_time(60)
        before = epochs(*joined)
        caplog.clear()
        await pass_time(WHILE_S)
        assert epochs(*joined) == before
        for one, other in itertools.permutations((1, 2, 3), 2):
            line = f"broker_unreachable from={one} to={other} address=broker-{other}:9092 "
            assert WHILE_S / REPEAT_S - 1 <= caplog.text.count(line) <= WHILE_S / REPEAT_S + 1
        assert sum(before.values()) <= 2 * len(before)
        for broker in joined:
            others = {1, 2, 3} - {broker.settings.broker_id}
            assert set(broker.membership.neighbours.reachability.unreachable()) == others
            assert set(broker.state.brokers) == {1, 2, 3}

    with caplog.at_level(logging.WARNING, "holdfast"):
        simulate(test)


@simulated
async def test_brokers_that_hear_each_other_put_nothing_into_the_store_for_it(world: Several):
    store = world.store_of_its_own()
    watched = Watched()
    store.before.append(watched)
    await world.join(1, store=store)
    await world.join(2)
    await pass_time(SETTLED_S)
    watched.calls.clear()
    await pass_time(WHILE_S)
    assert [key for operation, key in watched.calls if operation in ("create", "delete")] == []
    assert watched.count("list", PREFIX) == 0


@simulated
async def test_a_broker_that_is_gone_for_good_costs_a_few_puts_once(world: Several):
    store = world.store_of_its_own()
    watched = Watched()
    first = await world.join(1, store=store)
    second = await world.join(2)
    await pass_time(SETTLED_S)
    store.before.append(watched)
    await world.kill(second)
    await pass_time(SEARCH_S + LEAVE_INTERVAL_S)
    puts = watched.count("create", PREFIX)
    assert 1 <= puts <= SEARCH_S / LEAVE_INTERVAL_S + 1
    watched.calls.clear()
    await pass_time(WHILE_S)
    assert watched.count("create", PREFIX) == 0
    assert watched.count("list", PREFIX) <= WHILE_S / LOOK_IDLE_S
    epochs(first)


@simulated
async def test_nothing_is_left_in_the_store_once_all_hear_each_other_again(world: Several):
    joined = [await world.join(i) for i in (1, 2)]
    await pass_time(SETTLED_S)
    for broker in joined:
        world.silence(broker)
    await pass_time(60)
    assert await world.store.list(PREFIX) != []
    for broker in joined:
        world.heal(broker)
    await pass_time(60)
    assert await world.store.list(PREFIX) == []
    epochs(*joined)


@simulated
async def test_an_address_at_which_another_broker_answers_is_not_where_a_broker_is_reached(
    world: Several,
):
    first, second = [await world.join(i) for i in (1, 2)]
    await pass_time(SETTLED_S)
    before = [broker.report().lanes for broker in (first, second)]
    for broker in (first, second):  # as where all advertise 127.0.0.1
        other = second if broker is first else first
        world.wires.listening[world.address(broker)] = other
    await pass_time(60)
    assert [broker.report().lanes for broker in (first, second)] == before
    assert first.membership.neighbours.reachability.unreachable() == {
        2: Address(second.settings.host, second.settings.port)
    }
