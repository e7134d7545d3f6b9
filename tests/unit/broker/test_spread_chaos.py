"""Transactions over several brokers through seeded faults: each is there as a whole, or not at all.

Brokers die, leave, are cut off and come back; messages between them are lost, answers too, and ends
come late and twice. Producers go on as clients do.
"""

import asyncio
import dataclasses
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.async_tests import simulated
from tests.support.brokers import pass_time
from tests.support.clusters import Several
from tests.support.transactional import BEFORE, VERSIONS
from tests.unit.broker.spread import PARTITIONS, PEER, RoutedProducer, Spread

from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.dispatch import answer
from holdfast.client.address import Address
from holdfast.client.refusals import RETRIABLE, BrokerUnavailable
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.message import Message
from holdfast.protocol.messages.end_transaction_parts import EndTransactionPartsRequest
from holdfast.protocol.messages.join_transaction import JoinTransactionRequest
from holdfast.protocol.messages.produce import ProduceRequest
from holdfast.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

pytestmark = pytest.mark.slow

SEEDS = range(1, 9)
FAULTS = 6
PRODUCERS = 3
CALM_S = 90.0
LOST = 0.1
LATE_S_MAX = 20.0


class Unanswered(Exception):
    """The broker that was asked died, or nobody was there to ask."""


@dataclasses.dataclass
class Done:
    """A transaction, as its producer knows it."""

    value: bytes
    partitions: set[int]
    offset: int
    committed: bool | None = None
    """None: the producer does not know."""


class Network:
    """Loses messages and answers between brokers, and repeats ends."""

    def __init__(self, world: Several, chance: random.Random) -> None:
        self._world = world
        self._chance = chance
        self.is_calm = False
        self.repeated: list[ErrorCode] = []
        self._tasks: set[asyncio.Task[None]] = set()
        world.wires.before.append(self.before)
        world.wires.after.append(self.after)

    async def before(self, own: Address, to: Address, request: Message) -> None:
        del own
        if not isinstance(request, EndTransactionPartsRequest | JoinTransactionRequest):
            return
        await asyncio.sleep(self._chance.choice([0, 0, 0.01, 0.3]))
        if isinstance(request, EndTransactionPartsRequest):
            task = self._world.loop.create_task(self._repeat(to, request))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._lose()

    async def after(self, own: Address, to: Address, request: Message) -> None:
        del own, to
        if isinstance(request, EndTransactionPartsRequest | JoinTransactionRequest):
            await asyncio.sleep(self._chance.choice([0, 0, 0.01, 0.3, 2.0]))
            self._lose()

    def _lose(self) -> None:
        if not self.is_calm and self._chance.random() < LOST:
            raise BrokerUnavailable("lost on the way")

    async def _repeat(self, to: Address, request: EndTransactionPartsRequest) -> None:
        await asyncio.sleep(self._chance.uniform(0, LATE_S_MAX))
        broker = self._world.wires.listening.get(to)
        if broker is not None:
            told = await answer(broker, request, PEER)
            self.repeated += [ErrorCode(part.error_code) for part in told.partitions]


class Client(RoutedProducer):
    """A producer that asks whoever says that it is the right one, also one that is out of date."""

    def __init__(
        self, spread: Spread, name: str, versions: dict[str, int], chance: random.Random
    ) -> None:
        super().__init__(spread, name, versions)
        self._chance = chance
        self.done: list[Done] = []
        self.partition = int(name[-1])
        """Whose offset it commits."""

    async def ask(self, request: Any, version: int) -> Any:
        lane = self.broker.lane_of_name(self.transactional_id)
        if isinstance(request, ProduceRequest):
            lane = self.spread.lane(request.topic_data[0].partition_data[0].index)
        elif isinstance(request, TxnOffsetCommitRequest):
            lane = self.broker.lane_of_name(request.group_id)
        found = [each for each in self.spread.brokers if lane in each.lanes]
        if not found:
            raise Unanswered
        broker = self._chance.choice(found)
        told = await answer(broker, request, RequestContext(api_version=version))
        if broker not in self.spread.brokers:
            raise Unanswered
        return told

    async def again(self, ask: Callable[[], Awaitable[ErrorCode]]) -> ErrorCode:
        """Until an answer comes that is not to be tried again."""
        while True:
            try:
                error = await ask()
                if error not in RETRIABLE:
                    return error
            except Unanswered:
                pass
            await asyncio.sleep(0.1)

    async def _sent(self, partition: int, value: bytes) -> ErrorCode:
        sequences = dict(self.sequences)
        try:
            error = ErrorCode((await self.send(partition, value)).error_code)
        except Unanswered:
            self.sequences = sequences
            raise
        if error is not ErrorCode.NONE:
            self.sequences = sequences
        return error

    async def _written(self, done: Done) -> ErrorCode:
        for partition in done.partitions:
            if self.versions is BEFORE:
                error = await self.again(lambda p=partition: self.add(p))
                if error is not ErrorCode.NONE:
                    return error
            error = await self.again(lambda p=partition: self._sent(p, done.value))
            if error is not ErrorCode.NONE:
                return error
        if self.versions is BEFORE:
            error = await self.again(self.add_group)
            if error is not ErrorCode.NONE:
                return error
        return await self.again(lambda: self.commit_offset(self.partition, done.offset))

    async def run(self, until: asyncio.Event) -> None:
        assert await self.again(self.init) is ErrorCode.NONE
        number = 0
        while not until.is_set():
            number += 1
            partitions = set(self._chance.sample(range(PARTITIONS), self._chance.randint(1, 3)))
            done = Done(f"{self.transactional_id}:{number}".encode(), partitions, number)
            self.done.append(done)
            wanted = self._chance.random() < 0.7
            if await self._written(done) is not ErrorCode.NONE:
                done.committed = False
                wanted = False
            ended = await self.again(lambda w=wanted: self.end(committed=w))
            if ended is ErrorCode.NONE:
                done.committed = wanted
            elif wanted:
                done.committed = None
            if ended is not ErrorCode.NONE or not wanted:
                # As clients do whose batches may be under way still.
                assert await self.again(self.init) is ErrorCode.NONE
            await asyncio.sleep(self._chance.choice([0, 0, 0.5]))


async def harm(spread: Spread, chance: random.Random, number: int) -> None:
    """One fault, from its beginning to its end."""
    world = spread.world
    victim: Broker = chance.choice(spread.brokers)
    broker_id = victim.settings.broker_id
    fault = chance.choice(["kill", "leave", "cut off", "hand over"])
    if fault == "hand over":
        other = chance.choice([each for each in spread.brokers if each is not victim])
        if victim.lanes:
            lane = chance.choice(sorted(victim.lanes))
            epoch = victim.lanes[lane].leader_epoch
            await victim.hand_over(lane, epoch, other.settings.broker_id)
        return
    if fault == "cut off":
        world.silence(victim)
        await pass_time(chance.uniform(1, 15))
        world.heal(victim)
        return
    spread.brokers.remove(victim)
    if fault == "kill":
        await world.kill(victim)
        await pass_time(chance.uniform(0.1, 15))
    else:
        await world.leave(victim)
    spread.brokers.append(await world.join(broker_id, lanes=victim.settings.lanes))
    del number


def check(client: Client, seen: dict[int, list[bytes | None]]) -> None:
    for done in client.done:
        times = {p: seen[p].count(done.value) for p in range(PARTITIONS)}
        there = {p for p, count in times.items() if count}
        assert max(times.values()) <= 1, (done, times)
        if done.committed is not False and (done.committed or there):
            assert there == done.partitions, (done, times)
        else:
            assert not there, (done, times)


@VERSIONS
@pytest.mark.parametrize("seed", SEEDS)
@simulated
async def test_each_transaction_is_there_as_a_whole_or_not_at_all(
    world: Several, seed: int, versions: dict[str, int]
):
    chance = random.Random(seed)
    spread = await Spread.start(world)
    network = Network(world, chance)
    over = asyncio.Event()
    clients = [Client(spread, f"client-{i}", versions, chance) for i in range(PRODUCERS)]
    running = [world.loop.create_task(client.run(over)) for client in clients]
    for number in range(FAULTS):
        await harm(spread, chance, number)
        await pass_time(chance.uniform(0.5, 10))
    network.is_calm = True
    over.set()
    await asyncio.gather(*running)
    await pass_time(CALM_S)
    seen = {p: await spread.committed_values(p) for p in range(PARTITIONS)}
    for partition in range(PARTITIONS):
        assert not await spread.is_open(partition), partition
    for client in clients:
        check(client, seen)
        committed = [done.offset for done in client.done if done.committed]
        unknown = [done.offset for done in client.done if done.committed is None]
        offset = await spread.committed_offset(client.partition)
        assert offset in {*committed[-1:], *unknown} or not committed
    ended = [done for client in clients for done in client.done if done.committed]
    assert len(ended) >= PRODUCERS
