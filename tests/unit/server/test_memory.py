"""The count of request bytes: who may grow, who waits, and that no wait is for ever."""

import random

import pytest

from holdfast.server.memory import RequestMemory


class Owner:
    """Asks for the bytes of one frame in steps, then holds it until it is answered."""

    def __init__(self, memory: RequestMemory, steps: list[int]) -> None:
        self.memory = memory
        self.steps = steps
        self.has = 0
        self.is_waiting = False
        self.is_whole = False

    def go_on(self) -> None:
        while self.steps and not self.is_waiting:
            if self.memory.try_reserve(self, self.steps[0]):
                self.has += self.steps.pop(0)
            else:
                self.is_waiting = True
                self.memory.wait_for(self, self.steps[0])
        if not self.steps and not self.is_whole:
            self.is_whole = True
            self.memory.take_whole(self, self.has)

    def memory_is_there(self) -> None:
        assert self.is_waiting
        self.is_waiting = False
        self.has += self.steps.pop(0)


@pytest.mark.parametrize("seed", range(50))
def test_every_frame_gets_through_and_the_bound_is_passed_by_one_frame_at_most(seed):
    chance = random.Random(seed)
    memory = RequestMemory(100)
    owners = [
        Owner(memory, [chance.randrange(1, 60) for _ in range(chance.randrange(1, 5))])
        for _ in range(15)
    ]
    largest = max(sum(owner.steps) for owner in owners)
    for _ in range(10_000):
        if not owners:
            break
        owner = chance.choice(owners)
        if owner.is_whole:
            owners.remove(owner)
            memory.give_back(owner.has)
        elif not owner.is_waiting and chance.random() < 0.05:
            owners.remove(owner)
            memory.leave(owner, whole=0, unfinished=owner.has)
        elif not owner.is_waiting:
            owner.go_on()
        assert memory.used_bytes <= 100 + largest
    assert owners == []
    assert memory.used_bytes == 0
    assert not memory.has_waiting


def test_one_that_waits_for_room_goes_on_when_there_is_some():
    memory = RequestMemory(100)
    holder, waiter = Owner(memory, [100]), Owner(memory, [0])
    holder.go_on()
    assert memory.is_full
    waiter.go_on()
    assert waiter.is_waiting
    memory.give_back(100)
    assert not waiter.is_waiting


def test_large_frames_leave_a_share_to_small_requests():
    memory = RequestMemory(400)
    for _ in range(9):
        unfinished = Owner(memory, [])
        if not memory.try_reserve(unfinished, 60):
            memory.wait_for(unfinished, 60)
    assert memory.has_waiting
    assert memory.used_bytes >= 300
    small = Owner(memory, [])
    assert not memory.is_full
    for _ in range(4):
        assert memory.try_reserve(small, 25, is_large=False)
    assert memory.used_bytes <= 400 + 60  # one frame may be above the bound


def test_small_requests_are_bounded_too():
    memory = RequestMemory(400)
    first, second = Owner(memory, []), Owner(memory, [])
    assert memory.try_reserve(first, 400, is_large=False)
    memory.take_whole(first, 400)
    assert memory.is_full
    assert not memory.try_reserve(second, 10, is_large=False)
