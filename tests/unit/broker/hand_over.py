"""Two brokers, and a lane that goes from one to the other."""

import asyncio
import dataclasses
from typing import Any

from tests.support.clusters import Several
from tests.support.stores import Hold, HookedStore
from tests.unit.broker.spread import Spread

from holdfast.broker.broker import Broker
from holdfast.identifiers import BrokerId, LaneId
from holdfast.lane.keys import entry_prefix


def partition_of(broker: Broker, lane: LaneId) -> int:
    topic = broker.state.topic_named("t")
    assert topic is not None
    return topic.lanes.index(lane)


@dataclasses.dataclass
class HandOver:
    """Broker 1 is about to hand a lane over to 2; puts of broker 1 into that lane can be held."""

    giver: Broker
    taker: Broker
    store: HookedStore
    lane: LaneId
    partition: int

    @classmethod
    async def ready(cls, world: Several, **options: Any) -> "HandOver":
        store = world.store_of_its_own()
        giver = await world.join(1, store=store, lanes=6, **options)
        taker = await world.join(2, lanes=6)
        await Spread.of(world, [giver, taker])
        lane = next(iter(giver.lanes))
        return cls(giver, taker, store, lane, partition_of(giver, lane))

    def begin(self) -> "asyncio.Task[bool]":
        leader_epoch = self.giver.lanes[self.lane].leader_epoch
        return asyncio.ensure_future(self.giver.hand_over(self.lane, leader_epoch, BrokerId(2)))

    def hold_puts(self) -> Hold:
        hold = Hold("create", entry_prefix(self.lane))
        self.store.before.append(hold)
        return hold
