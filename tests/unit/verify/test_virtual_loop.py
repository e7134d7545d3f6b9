"""The virtual loop: asyncio's primitives hold, processes die and stand still, seeds repeat."""

import asyncio
import gc
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from simulation.virtual_loop import PROCESS, Runaway, Schedule, Stalled, VirtualLoop

from holdfast.errors import CallError

SEEDS = range(60)
Main = Callable[[VirtualLoop], Coroutine[Any, Any, Any]]


def run(main: Main, seed: int = 1, **bounds: Any) -> Any:
    loop = VirtualLoop(seed=seed, **bounds)
    try:
        return loop.run_until_complete(main(loop))
    finally:
        loop.close()


@pytest.mark.parametrize("schedule", list(Schedule))
def test_time_jumps_to_the_next_timer(schedule: Schedule):
    async def main(loop: VirtualLoop) -> float:
        await asyncio.sleep(3600)
        return loop.time()

    assert run(main, schedule=schedule) == 3600


@pytest.mark.parametrize("schedule", list(Schedule))
def test_a_lock_admits_one_at_a_time_under_every_schedule(schedule: Schedule):
    async def main(loop: VirtualLoop) -> int:
        lock, inside, most = asyncio.Lock(), 0, 0

        async def worker() -> None:
            nonlocal inside, most
            for _ in range(3):
                async with lock:
                    inside += 1
                    most = max(most, inside)
                    await asyncio.sleep(0)
                    inside -= 1

        await asyncio.gather(*(worker() for _ in range(4)))
        return most

    assert {run(main, seed, schedule=schedule) for seed in SEEDS} == {1}


def test_a_queue_hands_out_everything_once_and_in_order():
    async def main(loop: VirtualLoop) -> list[int]:
        queue: asyncio.Queue[int | None] = asyncio.Queue(maxsize=2)
        got: list[int] = []

        async def consume() -> None:
            while (item := await queue.get()) is not None:
                got.append(item)

        consumer = asyncio.create_task(consume())
        for item in range(20):
            await queue.put(item)
        await queue.put(None)
        await consumer
        return got

    assert all(run(main, seed) == list(range(20)) for seed in SEEDS)


def test_timeouts_cancel_and_do_not_outlive_their_block():
    async def main(loop: VirtualLoop) -> tuple[float, int]:
        late = 0
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 5)
        for _ in range(50):
            try:
                async with asyncio.timeout(1):
                    await asyncio.sleep(1)
            except TimeoutError:
                late += 1
            await asyncio.sleep(0.5)
        return loop.time(), late

    for seed in SEEDS:
        seconds, late = run(main, seed)
        assert seconds == 10 + 75
        assert 0 <= late <= 50


def test_wait_gather_condition_semaphore_and_task_groups_work():
    async def main(loop: VirtualLoop) -> list[Any]:
        async def after(seconds: float, value: int) -> int:
            await asyncio.sleep(seconds)
            return value

        tasks = [asyncio.create_task(after(n, n)) for n in (3, 1, 2)]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        first = [task.result() for task in done]
        rest = sorted(await asyncio.gather(*pending))
        condition, semaphore, woken = asyncio.Condition(), asyncio.Semaphore(1), 0

        async def waiter() -> None:
            nonlocal woken
            async with condition:
                await condition.wait()
            async with semaphore:
                woken += 1

        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(waiter())
            await asyncio.sleep(1)
            async with condition:
                condition.notify_all()
        return [first, rest, woken, loop.time()]

    assert all(run(main, seed) == [[1], [2, 3], 3, 4.0] for seed in SEEDS)


def test_within_a_process_order_holds_unless_tasks_are_shuffled():
    async def main(loop: VirtualLoop) -> tuple[int, ...]:
        order: list[int] = []

        async def note(number: int) -> None:
            order.append(number)

        await asyncio.gather(*(note(number) for number in range(5)))
        return tuple(order)

    assert {run(main, seed, schedule=Schedule.PROCESSES) for seed in SEEDS} == {(0, 1, 2, 3, 4)}
    assert len({run(main, seed, schedule=Schedule.TASKS) for seed in SEEDS}) > 20


def test_between_processes_the_order_varies_with_the_seed():
    async def main(loop: VirtualLoop) -> tuple[str, ...]:
        order: list[str] = []

        async def note() -> None:
            order.append(PROCESS.get())

        await asyncio.gather(*(loop.spawn(f"broker-{n}", note()) for n in range(4)))
        return tuple(order)

    assert len({run(main, seed, schedule=Schedule.PROCESSES) for seed in SEEDS}) > 10


def test_a_killed_process_never_runs_again_not_even_its_finally():
    async def main(loop: VirtualLoop) -> list[str]:
        said: list[str] = []

        async def child() -> None:
            try:
                while True:
                    await asyncio.sleep(1)
                    said.append(f"child {loop.time()}")
            finally:
                said.append("finally")

        async def broker() -> None:
            await asyncio.create_task(child())

        loop.spawn("broker-1", broker())
        await asyncio.sleep(2.5)
        loop.kill("broker-1")
        loop.spawn("broker-1", broker())
        await asyncio.sleep(10)
        return list(said)

    assert run(main) == ["child 1.0", "child 2.0"]


def test_a_paused_process_runs_late_and_sees_the_time_gone():
    async def main(loop: VirtualLoop) -> list[float]:
        seen: list[float] = []

        async def broker() -> None:
            for _ in range(3):
                await asyncio.sleep(1)
                seen.append(loop.time())

        task = loop.spawn("broker-1", broker())
        await asyncio.sleep(1.5)
        loop.pause("broker-1", 60)
        assert loop.is_paused("broker-1")
        await task
        return seen

    assert run(main) == [1.0, 61.5, 62.5]


def test_a_future_of_another_process_wakes_the_waiter_in_its_own():
    async def main(loop: VirtualLoop) -> str:
        answer: asyncio.Future[None] = loop.create_future()

        async def broker() -> str:
            await answer
            return PROCESS.get()

        async def network() -> None:
            answer.set_result(None)

        task = loop.spawn("broker-1", broker())
        loop.spawn("network", network())
        return await task

    assert all(run(main, seed) == "broker-1" for seed in SEEDS)


def test_a_seed_that_runs_away_says_so():
    async def spin(loop: VirtualLoop) -> None:
        for _ in range(10_000):
            await asyncio.sleep(0)

    async def linger(loop: VirtualLoop) -> None:
        await asyncio.sleep(10_000)

    with pytest.raises(Runaway, match="seed 7: more than 1000 steps"):
        run(spin, 7, steps_max=1000)
    with pytest.raises(Runaway, match=r"seed 7: more than 5000\.0 virtual seconds"):
        run(linger, 7, seconds_max=5000.0)


def test_waiting_for_nothing_is_named():
    async def main(loop: VirtualLoop) -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stalled, match="nothing is left to run"):
        run(main)


def test_threads_are_refused():
    async def main(loop: VirtualLoop) -> None:
        await asyncio.to_thread(print)

    with pytest.raises(CallError, match="a thread was asked for"):
        run(main)


def test_an_unhandled_exception_is_a_problem_of_the_run_and_taking_down_is_silent(
    capfd: pytest.CaptureFixture[str],
):
    async def main(loop: VirtualLoop) -> None:
        async def fail() -> None:
            raise ValueError("nobody looked")

        async def stubborn() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(1)

        loop.spawn("broker-1", fail())
        loop.spawn("broker-2", stubborn())
        await asyncio.sleep(1)

    loop = VirtualLoop(seed=1)
    loop.run_until_complete(main(loop))
    loop.close()
    gc.collect()
    assert len(loop.problems) == 1
    assert "broker-1" in loop.problems[0] and "nobody looked" in loop.problems[0]
    assert capfd.readouterr().err == ""


def story(seed: int) -> str:
    """A digest of all that a busy program with kills and pauses did."""
    digest = hashlib.sha256()

    async def main(loop: VirtualLoop) -> None:
        queue: asyncio.Queue[int] = asyncio.Queue(maxsize=3)
        names = {f"p{n}" for n in range(5)}

        async def worker(number: int) -> None:
            for item in range(10):
                await queue.put(number * 100 + item)
                await asyncio.sleep(number * 0.1)
                digest.update(f"{loop.steps} {loop.time()} {PROCESS.get()} {item};".encode())

        async def reader() -> None:
            while True:
                digest.update(f"got {await queue.get()};".encode())

        loop.spawn("reader", reader())
        for number, name in enumerate(sorted(names)):
            loop.spawn(name, worker(number))
        await asyncio.sleep(0.35)
        loop.kill("p3")
        loop.pause("p2", 2)
        await asyncio.sleep(20)

    run(main, seed)
    return digest.hexdigest()


def test_the_same_seed_gives_the_same_history_also_in_another_interpreter():
    here = [story(seed) for seed in range(5)]
    assert here == [story(seed) for seed in range(5)]
    assert len(set(here)) == 5
    code = (
        f"import importlib.util as u; s = u.spec_from_file_location('t', {__file__!r}); "
        "m = u.module_from_spec(s); s.loader.exec_module(m); "
        "print([m.story(seed) for seed in range(5)])"
    )
    for hash_seed in ("1", "424242"):
        there = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert there.stdout.strip() == str(here)
