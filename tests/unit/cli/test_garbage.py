"""The garbage collector of a broker: what it looks at, and what it frees."""

import gc
import weakref
from collections.abc import Iterator

import pytest
from tests.support.async_tests import simulated
from tests.support.brokers import Cluster, pass_time

from holdfast.cli.server.garbage import LEFT_S, OBJECTS_MAX, OLDEST, LongLivedObjects
from holdfast.identifiers import LaneId


@pytest.fixture
def objects() -> Iterator[LongLivedObjects]:
    found = LongLivedObjects()
    found.begin()
    yield found
    found.end()


class Cycle:
    """What only a collection frees."""

    def __init__(self) -> None:
        self.itself = self


def looked_at() -> int:
    """How many objects the next full collection begins with."""
    return len(gc.get_objects(generation=OLDEST))


def test_what_lives_long_is_not_looked_at_again(objects: LongLivedObjects):
    kept: list[list[int]] = []
    for _ in range(5):
        kept += [[i] for i in range(2 * OBJECTS_MAX)]
        gc.collect()
        assert looked_at() <= OBJECTS_MAX
    assert gc.get_freeze_count() > len(kept)


def test_few_objects_are_looked_at_each_time_so_that_cycles_among_them_are_freed(
    objects: LongLivedObjects,
):
    cycle = Cycle()
    gone = weakref.ref(cycle)
    gc.collect()
    frozen = gc.get_freeze_count()
    del cycle
    gc.collect()
    assert gone() is None
    assert gc.get_freeze_count() == frozen


@simulated
async def test_a_lane_that_was_left_is_freed(world: Cluster):
    objects = LongLivedObjects()
    lane = Cycle()
    gone = weakref.ref(lane)
    objects.begin()
    try:
        objects.lane_left(LaneId(1))
        del lane
        gc.collect()
        assert gone() is not None
        await pass_time(2 * LEFT_S)
        gc.collect()
        assert gone() is None
    finally:
        objects.end()


def test_nothing_is_left_behind_at_the_end():
    callbacks = list(gc.callbacks)
    objects = LongLivedObjects()
    objects.begin()
    objects.end()
    assert gc.callbacks == callbacks
    assert gc.get_freeze_count() == 0
