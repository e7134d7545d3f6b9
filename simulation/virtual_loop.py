"""A deterministic asyncio event loop on virtual time, with simulated processes that can be killed.

Owns the schedule: the next handle is drawn from one seed, and time jumps to the next timer when
nothing can run. A handle belongs to the process that its context names, so a kill (the process
never runs again) or a pause (it runs late) takes effect at any await. Must never use real time,
threads, sockets or randomness outside its seed.
"""

import asyncio
import contextvars
import enum
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar, TypeVarTuple, Unpack

from holdfast.environment import SeededEnvironment, VirtualClock
from holdfast.errors import CallError, StopError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

WORLD = "world"
"""The process of everything that no simulated failure touches: the store, the network, the test."""

PROCESS: contextvars.ContextVar[str] = contextvars.ContextVar("process", default=WORLD)
"""The simulated process that the running code belongs to; tasks inherit it from their creator."""

CLOSE_TRIES_MAX = 100


class Schedule(enum.Enum):
    """How freely the loop may reorder the handles that are ready."""

    PROCESSES = "processes"
    """First in, first out within a process, as in asyncio; any order between processes."""
    TASKS = "tasks"
    """Any order of all ready handles, except the callbacks of one future. It shows what would
    otherwise need an unlucky machine."""


class Runaway(StopError):
    """The simulated program did not end within its bound of steps or of virtual time."""


class Stalled(StopError):
    """Nothing is left to run, yet the main task is not done: it waits for ever."""


class VirtualHandle(asyncio.TimerHandle):
    """One callback with its context; it skips asyncio's own constructor, which costs more."""

    __slots__ = ("arguments", "at", "function", "is_dropped", "run_context")

    def __init__(  # pyright: ignore[reportMissingSuperCall]
        self,
        at: float,
        function: Callable[..., object],
        arguments: tuple[Any, ...],
        run_context: contextvars.Context,
    ) -> None:
        self.at = at
        self.function = function
        self.arguments = arguments
        self.run_context = run_context
        self.is_dropped = False

    def cancel(self) -> None:
        self.is_dropped = True

    def cancelled(self) -> bool:
        return self.is_dropped

    def when(self) -> float:
        return self.at

    def __repr__(self) -> str:
        return f"<handle {self.function!r} at {self.at}>"


class _Process:
    """The ready handles of one simulated process."""

    __slots__ = ("handles", "is_dead", "is_paused", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.handles: deque[VirtualHandle] = deque()
        self.is_dead = False
        self.is_paused = False


class VirtualLoop(asyncio.AbstractEventLoop):
    """An event loop whose whole behaviour follows from its seed and from what runs on it."""

    def __init__(
        self,
        *,
        seed: int,
        schedule: Schedule = Schedule.TASKS,
        steps_max: int = 1_000_000,
        seconds_max: float = 1_000_000.0,
        step_seconds: float = 0.0,
    ) -> None:
        self.seed = seed
        self.steps = 0
        self.problems: list[str] = []
        """Unhandled exceptions, as text; a run that has any is not a clean run."""
        self._draw = SeededEnvironment(seed=seed, clock=VirtualClock()).random().random
        self._shuffles_tasks = schedule is Schedule.TASKS
        self._steps_max = steps_max
        self._seconds_max = seconds_max
        self._step_seconds = step_seconds
        self._now = 0.0
        self._timers: list[tuple[float, int, VirtualHandle]] = []
        self._timer_count = 0
        self._processes: dict[str, _Process] = {}
        self._runnable: list[_Process] = []
        self._tasks: list[tuple[asyncio.Task[Any], contextvars.Context]] = []
        self._is_running = False
        self._is_closed = False

    # Called by asyncio's own primitives.

    def time(self) -> float:
        return self._now

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        if context is None:
            context = contextvars.copy_context()
        handle = VirtualHandle(self._now, callback, args, context)
        self._make_ready(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        if context is None:
            context = contextvars.copy_context()
        handle = VirtualHandle(when, callback, args, context)
        self._timer_count += 1
        heapq.heappush(self._timers, (when, self._timer_count, handle))
        return handle

    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        if context is None:
            context = contextvars.copy_context()
        task: asyncio.Task[T] = asyncio.Task(
            coro,  # pyright: ignore[reportArgumentType]
            loop=self,
            name=None if name is None else str(name),
            context=context,
        )
        self._tasks.append((task, context))
        return task

    def run_in_executor(self, executor: object, func: Callable[..., Any], *args: Any) -> Any:
        raise CallError(
            f"a thread was asked for, to run {func!r}: the simulation has none, so that a seed "
            "has one history"
        )

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._is_closed:
            self.problems.append(f"{context.get('message')}: {context.get('exception')!r}")

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        """Do nothing: asyncio's debug mode reads the real clock, so it stays off."""

    def is_running(self) -> bool:
        return self._is_running

    def is_closed(self) -> bool:
        return self._is_closed

    # Simulated processes.

    def spawn(
        self, process: str, coro: Coroutine[Any, Any, T], *, name: str | None = None
    ) -> asyncio.Task[T]:
        """Start a task inside a process; a task of a killed process never runs."""
        context = contextvars.copy_context()
        context.run(PROCESS.set, process)
        return self.create_task(coro, name=name, context=context)

    def kill(self, process: str) -> None:
        """Kill a process as `kill -9` does: none of its code ever runs again, not even a
        `finally`."""
        entry = self._process(process)
        entry.is_dead = True
        entry.handles.clear()
        if entry in self._runnable:
            self._runnable.remove(entry)

    def pause(self, process: str, seconds: float) -> None:
        """Pause a process as SIGSTOP does and resume it later; timers that fall due meanwhile run
        late."""
        entry = self._process(process)
        if entry.is_dead or entry.is_paused:
            return
        entry.is_paused = True
        if entry in self._runnable:
            self._runnable.remove(entry)
        context = contextvars.Context()
        context.run(PROCESS.set, WORLD)
        self.call_at(self._now + seconds, self._resume, entry, context=context)

    def is_alive(self, process: str) -> bool:
        return not self._process(process).is_dead

    def is_paused(self, process: str) -> bool:
        return self._process(process).is_paused

    # Running.

    def run_until_complete(self, future: Any) -> Any:
        """Run until the future is done. Raises Runaway or Stalled if that does not happen."""
        if self._is_closed or self._is_running:
            raise CallError(f"the virtual loop of seed {self.seed} is closed or already running")
        main: asyncio.Future[Any] = asyncio.ensure_future(future, loop=self)
        self._is_running = True
        before = asyncio._get_running_loop()  # pyright: ignore[reportPrivateUsage]
        asyncio._set_running_loop(self)  # pyright: ignore[reportPrivateUsage]
        try:
            while not main.done():
                self._step()
        finally:
            asyncio._set_running_loop(before)  # pyright: ignore[reportPrivateUsage]
            self._is_running = False
        return main.result()

    def close(self) -> None:
        """Discard what is left without warnings, and record unhandled exceptions of tasks."""
        if self._is_closed:
            return
        for task, context in self._tasks:
            self._note_unhandled(task, context.get(PROCESS, WORLD))
        self._is_closed = True
        self._timers.clear()
        self._runnable.clear()
        for process in self._processes.values():
            process.handles.clear()
        for task, _ in self._tasks:
            if not task.done():
                _discard(task)
        self._tasks.clear()

    def _step(self) -> None:
        timers = self._timers
        if timers and timers[0][0] <= self._now:
            self._release_due_timers()
        runnable = self._runnable
        count = len(runnable)
        if not count:
            self._jump_to_next_timer()
            return
        index = int(self._draw() * count) if count > 1 else 0
        process = runnable[index]
        handles = process.handles
        if self._shuffles_tasks and (waiting := len(handles)) > 1:
            handle = _take(handles, int(self._draw() * waiting))
        else:
            handle = handles.popleft()
        if not handles:
            runnable[index] = runnable[-1]
            runnable.pop()
        if handle.is_dropped:
            return
        self.steps += 1
        if self.steps > self._steps_max:
            raise Runaway(
                f"seed {self.seed}: more than {self._steps_max} steps, at virtual second "
                f"{self._now:.3f}, about to run {handle!r} of process {process.name}"
            )
        self._now += self._step_seconds
        try:
            handle.run_context.run(handle.function, *handle.arguments)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.call_exception_handler({"message": f"callback {handle!r}", "exception": error})

    def _make_ready(self, handle: VirtualHandle) -> None:
        if self._is_closed:
            return
        name = handle.run_context.get(PROCESS, WORLD)
        process = self._processes.get(name) or self._process(name)
        if process.is_dead:
            return
        if not process.handles and not process.is_paused:
            self._runnable.append(process)
        process.handles.append(handle)

    def _process(self, name: str) -> _Process:
        process = self._processes.get(name)
        if process is None:
            process = self._processes[name] = _Process(name)
        return process

    def _resume(self, process: _Process) -> None:
        process.is_paused = False
        if process.handles and not process.is_dead:
            self._runnable.append(process)

    def _release_due_timers(self) -> None:
        timers = self._timers
        now = self._now
        while timers and timers[0][0] <= now:
            handle = heapq.heappop(timers)[2]
            if not handle.is_dropped:
                self._make_ready(handle)

    def _jump_to_next_timer(self) -> None:
        timers = self._timers
        while timers and timers[0][2].is_dropped:
            heapq.heappop(timers)
        if not timers:
            raise Stalled(
                f"seed {self.seed}: at virtual second {self._now:.3f}, after {self.steps} steps, "
                f"nothing is left to run and the main task still waits"
            )
        self._now = max(self._now, timers[0][0])
        if self._now > self._seconds_max:
            raise Runaway(
                f"seed {self.seed}: more than {self._seconds_max} virtual seconds, after "
                f"{self.steps} steps"
            )

    def _note_unhandled(self, task: asyncio.Task[Any], process: str) -> None:
        if task.done() and not task.cancelled() and getattr(task, "_log_traceback", False):
            self.problems.append(
                f"task {task.get_name()} of process {process}: {task.exception()!r}"
            )


def _take(handles: deque[VirtualHandle], position: int) -> VirtualHandle:
    """Remove a handle and return it; callbacks of one future keep their order, as asyncio
    requires."""
    handle = handles[position]
    if handle.arguments:
        subject = handle.arguments[0]
        for earlier in range(position):
            other = handles[earlier]
            if other.arguments and other.arguments[0] is subject:
                handle, position = other, earlier
                break
    del handles[position]
    return handle


def _discard(task: asyncio.Task[Any]) -> None:
    """Unwind a task that will never run, so that the interpreter prints no warning."""
    task._log_destroy_pending = False  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    coroutine: Any = task.get_coro()
    for _ in range(CLOSE_TRIES_MAX):
        try:
            coroutine.close()
        except BaseException:
            continue
        return
