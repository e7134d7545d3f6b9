"""The faults themselves: each does what it says, is counted, and comes from its seed alone."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from simulation.faults.faulty_store import FAULTS_OF, Fault, FaultPlan, FaultyStore, StoreOperation
from simulation.virtual_loop import VirtualLoop
from tests.support.async_tests import run_by

from holdfast.environment import SeededEnvironment, VirtualClock
from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.store.interface import CreateAnswer
from holdfast.store.memory import MemoryStore

BODY = bytes(range(200))


def simulate(main: Callable[[VirtualLoop], Coroutine[Any, Any, Any]], seed: int = 1) -> Any:
    loop = VirtualLoop(seed=seed)
    try:
        result = loop.run_until_complete(main(loop))
    finally:
        loop.close()
    assert loop.problems == []
    return result


def always(fault: Fault, **other: Any) -> tuple[MemoryStore, FaultyStore]:
    environment = SeededEnvironment(seed=1, clock=VirtualClock())
    store = MemoryStore(environment=environment)
    plan = FaultPlan(chances={fault: 1.0}, **other)
    return store, FaultyStore(store, plan=plan, chance=random.Random(5))


@pytest.mark.parametrize(
    ("fault", "lands_at_once"),
    [
        (Fault.LOST_BEFORE, False),
        (Fault.STALLED, False),
        (Fault.BURST, False),
        (Fault.LOST_AFTER, True),
        (Fault.ERROR_AFTER, True),
    ],
)
@run_by(simulate)
async def test_a_create_whose_answer_is_missing_landed_or_not_as_its_fault_says(
    loop: VirtualLoop, fault: Fault, lands_at_once: bool
):
    store, faulty = always(fault)
    with pytest.raises(StoreUnavailable, match="injected"):
        await faulty.create("k", [BODY])
    assert (await store.size("k") is not None) is lands_at_once
    assert faulty.injected == {(StoreOperation.CREATE, fault): 1}


def test_a_create_that_lands_later_does_so_after_its_sender_was_told_and_killed():
    async def main(loop: VirtualLoop) -> None:
        store, faulty = always(Fault.LANDS_LATER)

        async def sender() -> None:
            await faulty.create("k", [BODY])

        loop.spawn("broker", sender())
        await asyncio.sleep(1)
        loop.kill("broker")
        assert await store.size("k") is None
        await faulty.settle()
        assert await store.read("k") == BODY
        assert loop.time() > faulty_timeout

    faulty_timeout = FaultPlan().timeout_seconds
    simulate(main)


@run_by(simulate)
async def test_a_write_under_way_lands_although_its_sender_was_killed(loop: VirtualLoop):
    store, faulty = always(Fault.LATE, late_seconds=(10.0, 10.0))

    async def sender() -> None:
        await faulty.create("k", [BODY])

    loop.spawn("broker", sender())
    await asyncio.sleep(5)
    loop.kill("broker")
    await faulty.settle()
    assert await store.read("k") == BODY


@run_by(simulate)
async def test_what_lands_later_is_what_was_sent_although_the_buffer_is_used_again(
    loop: VirtualLoop,
):
    store, faulty = always(Fault.LANDS_LATER)
    buffer = bytearray(b"sent")
    with pytest.raises(StoreUnavailable):
        await faulty.create("k", [buffer])
    buffer[:] = b"used"
    await faulty.settle()
    assert await store.read("k") == b"sent"


@run_by(simulate)
async def test_a_repeated_create_answers_exists_for_our_own_object(loop: VirtualLoop):
    store, faulty = always(Fault.REPEATED)
    assert await faulty.create("k", [BODY]) is CreateAnswer.EXISTS
    assert await store.read("k") == BODY


@run_by(simulate)
async def test_a_conflict_has_no_effect(loop: VirtualLoop):
    store, faulty = always(Fault.CONFLICT)
    assert await faulty.create("k", [BODY]) is CreateAnswer.CONFLICT
    assert await store.size("k") is None


@run_by(simulate)
async def test_short_reads_and_bit_flips_change_the_answer_and_not_the_object(loop: VirtualLoop):
    store, faulty = always(Fault.SHORT_READ)
    await store.create("k", [BODY])
    short = await faulty.read("k")
    assert len(short) < len(BODY) and BODY.startswith(short)
    store, faulty = always(Fault.BIT_FLIP)
    await store.create("k", [BODY])
    flipped = await faulty.read("k")
    difference = int.from_bytes(flipped, "big") ^ int.from_bytes(BODY, "big")
    assert len(flipped) == len(BODY) and difference.bit_count() == 1
    assert await store.read("k") == BODY


@run_by(simulate)
async def test_a_burst_refuses_every_call_until_it_is_over(loop: VirtualLoop):
    _, faulty = always(Fault.BURST, burst_seconds=(3.0, 3.0))
    with pytest.raises(StoreUnavailable):
        await faulty.create("k", [BODY])
    faulty.enable(Fault.BURST, enabled=False)
    for call in (faulty.read("k"), faulty.size("k"), faulty.list(""), faulty.delete(["k"])):
        with pytest.raises(StoreUnavailable, match="burst"):
            await call
    await asyncio.sleep(3.1)
    assert await faulty.create("k", [BODY]) is CreateAnswer.CREATED


@run_by(simulate)
async def test_a_late_delete_removes_what_is_there_when_it_lands(loop: VirtualLoop):
    store, faulty = always(Fault.LANDS_LATER)
    with pytest.raises(StoreUnavailable):
        await faulty.delete(["k"])
    await store.create("k", [BODY])
    await faulty.settle()
    assert await store.size("k") is None


@run_by(simulate)
async def test_heal_ends_all_faults_and_break_again_brings_them_back(loop: VirtualLoop):
    _, faulty = always(Fault.LOST_BEFORE)
    faulty.heal()
    assert await faulty.create("k", [BODY]) is CreateAnswer.CREATED
    faulty.break_again()
    with pytest.raises(StoreUnavailable):
        await faulty.read("k")


def test_every_fault_of_every_operation_is_drawn_and_the_same_seed_gives_the_same_run():
    async def main(loop: VirtualLoop) -> tuple[list[str], set[tuple[StoreOperation, Fault]]]:
        environment = SeededEnvironment(seed=1, clock=VirtualClock())
        plan = FaultPlan.even(0.06, latency_seconds=(0.0, 0.2))
        faulty = FaultyStore(
            MemoryStore(environment=environment), plan=plan, chance=random.Random(9)
        )
        history: list[str] = []
        for turn in range(400):
            await asyncio.sleep(5)
            key = f"k/{turn % 7}"
            for call in (
                lambda key=key, turn=turn: faulty.create(key, [b"%d" % turn]),
                lambda key=key: faulty.read(key),
                lambda key=key: faulty.size(key),
                lambda: faulty.list("k/"),
                lambda key=key: faulty.delete([key]),
            ):
                try:
                    history.append(repr(await call()))
                except HoldfastError as error:
                    history.append(str(error))
        await faulty.settle()
        history.append(f"{loop.time()} {sorted(faulty.faults_by_kind().values())}")
        return history, set(faulty.injected)

    first, kinds = simulate(main)
    again, _ = simulate(main)
    assert first == again
    assert kinds == {
        (operation, fault) for operation in StoreOperation for fault in FAULTS_OF[operation]
    }
