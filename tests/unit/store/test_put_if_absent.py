"""The primitive under every fault: no win is lost, none is false, and a loser knows who won."""

import asyncio
import random
import zlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from simulation.faults.faulty_store import FAULTS_OF, Fault, FaultPlan, FaultyStore, StoreOperation
from simulation.virtual_loop import VirtualLoop

from holdfast.environment import SeededEnvironment, VirtualClock
from holdfast.errors import CorruptObject, StoreUnavailable
from holdfast.store.interface import Buffers, CreateAnswer
from holdfast.store.memory import MemoryStore
from holdfast.store.put_if_absent import Backoff, Lost, RetryNotice, Won, put_if_absent, same_bytes

SEEDS = range(150)
RIVALS = 3
KEY = "lanes/1/00000000000000000042"

FAULT_CASES = [
    (operation, fault)
    for operation in (StoreOperation.CREATE, StoreOperation.READ, StoreOperation.SIZE)
    for fault in FAULTS_OF[operation]
]


def simulate(main: Callable[[], Coroutine[Any, Any, Any]], seed: int) -> Any:
    loop = VirtualLoop(seed=seed)
    try:
        result = loop.run_until_complete(main())
    finally:
        loop.close()
    assert loop.problems == []
    return result


def environment_of(seed: int) -> SeededEnvironment:
    return SeededEnvironment(seed=seed, clock=VirtualClock())


def body_of(rival: int) -> bytes:
    """The writer's random id, its checksum, and records."""
    writer_id = random.Random(rival).randbytes(16)
    return writer_id + zlib.crc32(writer_id).to_bytes(4, "big") + b"records " * rival


def is_from(rival: int) -> Callable[[bytes], bool]:
    def is_ours(head: bytes) -> bool:
        if zlib.crc32(head[:16]).to_bytes(4, "big") != head[16:]:
            raise CorruptObject(f"{KEY}: the writer's id fails its checksum")
        return head == body_of(rival)[:20]

    return is_ours


async def put(
    store: FaultyStore | MemoryStore, rival: int, seed: int, *, whole: bool = False, **more: Any
) -> Won | Lost:
    body = body_of(rival)
    return await put_if_absent(
        store,
        KEY,
        [body[:5], body[5:]],
        is_ours=same_bytes([body]) if whole else is_from(rival),
        identify_bytes=None if whole else 20,
        environment=environment_of(seed * 31 + rival),
        **more,
    )


Put = Callable[[FaultyStore, int, int], Coroutine[Any, Any, Won | Lost]]


async def race(plan: FaultPlan, seed: int, put_one: Put) -> tuple[list[Won | Lost], bytes, int]:
    """Rivals behind a bad network of their own each: their answers, the body, the faults."""
    store = MemoryStore(environment=environment_of(seed))
    views = [
        FaultyStore(store, plan=plan, chance=random.Random(seed * 1000 + rival))
        for rival in range(RIVALS)
    ]
    answers = await asyncio.gather(
        *(put_one(view, rival, seed) for rival, view in enumerate(views))
    )
    for view in views:
        await view.settle()
    faults = sum(sum(view.faults_by_kind().values()) for view in views)
    body = await store.read(KEY) if await store.size(KEY) is not None else b""
    return answers, body, faults


def verdict(answers: list[Won | Lost], body: bytes, *, whole: bool = False) -> str | None:
    """What is wrong with the answers, given what is in the store at the end."""
    winners = [rival for rival, answer in enumerate(answers) if isinstance(answer, Won)]
    if len(winners) != 1:
        return f"winners {winners}"
    if body != body_of(winners[0]):
        return f"{winners[0]} was told that it won over {body[:20]!r}"
    expected = body if whole else body[:20]
    strange = [a for a in answers if isinstance(a, Lost) and a.body != expected]
    return f"losers were shown {strange}" if strange else None


@pytest.mark.parametrize("whole", [False, True], ids=["by id", "by whole body"])
@pytest.mark.parametrize(("operation", "fault"), FAULT_CASES)
def test_each_fault_leaves_one_winner_and_losers_who_know_it(
    operation: StoreOperation, fault: Fault, whole: bool
):
    # A whole body without a checksum is told from a flipped one only by reading it twice.
    chance = 0.1 if whole and fault is Fault.BIT_FLIP else 0.3
    plan = FaultPlan(chances={fault: chance}, operations=frozenset({operation}))
    faults = 0
    for seed in SEEDS:
        answers, body, injected = simulate(
            lambda seed=seed: race(plan, seed, lambda *a: put(*a, whole=whole)), seed
        )
        assert verdict(answers, body, whole=whole) is None, f"seed {seed}"
        faults += injected
    if operation is not StoreOperation.SIZE or whole:
        assert faults > len(SEEDS) // 8


def test_all_faults_together_leave_one_winner_and_losers_who_know_it():
    plan = FaultPlan.even(0.06, latency_seconds=(0.0, 0.3))
    for seed in range(600):
        answers, body, _ = simulate(lambda seed=seed: race(plan, seed, put), seed)
        assert verdict(answers, body) is None, f"seed {seed}"


async def exists_means_lost(store: FaultyStore, rival: int, seed: int) -> Won | Lost:
    while True:
        try:
            answer = await store.create(KEY, [body_of(rival)])
        except StoreUnavailable:
            await asyncio.sleep(1)
            continue
        if answer is CreateAnswer.CREATED:
            return Won(attempts=1)
        if answer is CreateAnswer.EXISTS:
            return Lost(body=(await store.read(KEY, length=20)), attempts=1)


async def silence_means_won(store: FaultyStore, rival: int, seed: int) -> Won | Lost:
    try:
        answer = await store.create(KEY, [body_of(rival)])
    except StoreUnavailable:
        return Won(attempts=1)
    won = answer is CreateAnswer.CREATED
    return Won(attempts=1) if won else Lost(body=await store.read(KEY, length=20), attempts=1)


async def not_found_means_free(store: FaultyStore, rival: int, seed: int) -> Won | Lost:
    """After a time-out looks whether the object is there, and believes that it is not."""
    try:
        answer = await store.create(KEY, [body_of(rival)])
        if answer is CreateAnswer.CREATED:
            return Won(attempts=1)
    except StoreUnavailable:
        if await store.size(KEY) is None:
            return Lost(body=b"nobody", attempts=1)
    found = await store.read(KEY, length=20)
    ours = found == body_of(rival)[:20]
    return Won(attempts=1) if ours else Lost(body=found, attempts=1)


@pytest.mark.parametrize(
    ("naive", "fault"),
    [
        (exists_means_lost, Fault.REPEATED),
        (exists_means_lost, Fault.LOST_AFTER),
        (silence_means_won, Fault.LOST_BEFORE),
        (not_found_means_free, Fault.LANDS_LATER),
    ],
)
def test_the_race_catches_an_implementation_that_guesses(naive: Put, fault: Fault):
    plan = FaultPlan(chances={fault: 0.45}, operations=frozenset({StoreOperation.CREATE}))
    wrong = 0
    for seed in SEEDS:
        answers, body, _ = simulate(lambda seed=seed: race(plan, seed, naive), seed)
        wrong += verdict(answers, body) is not None
    assert wrong > 5


def test_a_lost_read_back_does_not_give_a_win_away():
    """Our own create came back as EXISTS; the read-back is short or flipped at first."""
    for fault in (Fault.SHORT_READ, Fault.BIT_FLIP, Fault.LOST_AFTER, Fault.STALLED):
        plan = FaultPlan(chances={fault: 0.3}, operations=frozenset({StoreOperation.READ}))
        for seed in SEEDS:

            async def main(plan: FaultPlan = plan, seed: int = seed) -> Won | Lost:
                store = MemoryStore(environment=environment_of(seed))
                await store.create(KEY, [body_of(1)])
                view = FaultyStore(store, plan=plan, chance=random.Random(seed))
                return await put(view, 1, seed)

            assert isinstance(simulate(main, seed), Won)


def test_a_cut_off_store_ends_at_the_deadline_with_an_unknown_outcome():
    async def main() -> float:
        store = FaultyStore(
            MemoryStore(environment=environment_of(1)), plan=FaultPlan(), chance=random.Random(1)
        )
        store.cut()
        with pytest.raises(StoreUnavailable, match="outcome is unknown"):
            await put(store, 1, 1, deadline_seconds=30.0)
        assert store.calls[StoreOperation.CREATE] > 10
        return asyncio.get_running_loop().time()

    assert simulate(main, 1) == 30.0


def test_without_a_deadline_it_goes_on_until_the_store_is_back():
    async def main() -> Won | Lost:
        store = FaultyStore(
            MemoryStore(environment=environment_of(1)), plan=FaultPlan(), chance=random.Random(1)
        )
        store.cut()
        task = asyncio.create_task(put(store, 1, 1))
        await asyncio.sleep(3600)
        assert not task.done()
        store.heal()
        return await task

    outcome = simulate(main, 1)
    assert isinstance(outcome, Won) and outcome.attempts > 1000


def test_a_cancelled_attempt_stops_and_a_later_one_with_the_same_bytes_still_wins():
    plan = FaultPlan(
        chances={Fault.LANDS_LATER: 1.0}, operations=frozenset({StoreOperation.CREATE})
    )

    async def main() -> Won | Lost:
        store = MemoryStore(environment=environment_of(1))
        view = FaultyStore(store, plan=plan, chance=random.Random(1))
        task = asyncio.create_task(put(view, 1, 1))
        await asyncio.sleep(plan.timeout_seconds / 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await store.size(KEY) is None
        await view.settle()
        assert await store.read(KEY) == body_of(1)
        view.heal()
        return await put(view, 1, 2)

    assert isinstance(simulate(main, 3), Won)


class LyingStore(MemoryStore):
    """Says that a key exists, some times, before anything is there."""

    def __init__(self, lies: int) -> None:
        super().__init__(environment=environment_of(1))
        self.lies = lies

    async def create(self, key: str, body: Buffers) -> CreateAnswer:
        if self.lies > 0:
            self.lies -= 1
            return CreateAnswer.EXISTS
        return await super().create(key, body)


def test_exists_without_an_object_is_tried_again():
    async def main() -> Won | Lost:
        return await put(LyingStore(lies=5), 1, 1)

    assert simulate(main, 1) == Won(attempts=6)


def test_an_object_that_stays_corrupt_stops_the_caller():
    async def main() -> int:
        store = MemoryStore(environment=environment_of(1))
        await store.create(KEY, [b"damaged at rest"])
        reads = 0

        def is_ours(found: bytes) -> bool:
            nonlocal reads
            reads += 1
            raise CorruptObject(f"{KEY}: wrong checksum of {len(found)} bytes")

        with pytest.raises(CorruptObject, match="wrong checksum"):
            await put_if_absent(
                store,
                KEY,
                [b"ours"],
                is_ours=is_ours,
                identify_bytes=4,
                environment=environment_of(1),
            )
        return reads

    assert 1 < simulate(main, 1) < 20


def test_a_read_back_that_fails_its_checksum_once_is_read_again():
    async def main() -> Won | Lost:
        store = MemoryStore(environment=environment_of(1))
        await store.create(KEY, [body_of(1)])
        doubts = iter([True, True, False])

        def is_ours(found: bytes) -> bool:
            if next(doubts):
                raise CorruptObject("flipped on the way")
            return found == body_of(1)[:16]

        return await put_if_absent(
            store,
            KEY,
            [body_of(1)],
            is_ours=is_ours,
            identify_bytes=16,
            environment=environment_of(1),
        )

    assert isinstance(simulate(main, 1), Won)


def test_delays_double_up_to_the_cap_and_each_retry_is_told():
    async def main() -> list[RetryNotice]:
        store = FaultyStore(
            MemoryStore(environment=environment_of(1)), plan=FaultPlan(), chance=random.Random(1)
        )
        store.cut()
        told: list[RetryNotice] = []
        backoff = Backoff(first_seconds=0.1, max_seconds=1.6, jitter=0.5)
        with pytest.raises(StoreUnavailable):
            await put(store, 1, 1, deadline_seconds=60.0, backoff=backoff, on_retry=told.append)
        return told

    told = simulate(main, 1)
    assert [retry.retries for retry in told] == list(range(len(told)))
    for retry in told:
        full = min(1.6, 0.1 * 2**retry.retries)
        assert full / 2 <= retry.delay_seconds <= full
        assert retry.key == KEY and "cut off" in retry.reason
    assert len({retry.delay_seconds for retry in told[6:]}) > 10
