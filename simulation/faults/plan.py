"""The faults of a simulation: drawn once from the seed, then injected at their time.

Owns the plan and carries it out. Each seed has only some kinds of fault, at its own rates: a run
with all of them at once would mostly wait. Must never decide anything from what the brokers do.
"""

import asyncio
import enum
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from holdfast.environment import Environment
from holdfast.verify.history import MarkerKind, Recorder
from simulation.faults.faulty_store import Fault, FaultPlan
from simulation.network import NetworkPlan
from simulation.virtual_loop import VirtualLoop

STORE_CHANCES = (0.0, 0.0, 0.002, 0.01, 0.04)
LATENCIES = ((0.0, 0.0), (0.001, 0.01), (0.005, 0.05), (0.02, 0.3))
STORE_CALLS_OF_A_START = 16
"""About how many store calls, one after the other, a new process needs to get its claims."""


class Act(enum.Enum):
    """The kinds of fault that the plan injects into a broker process."""

    KILL = "kill"
    """kill -9; the supervisor starts another process after a while."""
    PAUSE = "pause"
    RELEASE = "release"
    """A planned hand-off: the process releases its lanes and ends."""
    CLAIM = "claim"
    """More processes start and claim the lanes although the owner is alive."""
    STALL = "stall"
    """A process starts and is paused somewhere on its way to the claim; the owner continues."""
    CUT = "cut"
    """The process cannot reach the store for a while."""
    PART = "part"
    """Brokers cannot reach each other for a while, but can still reach the store."""


ALONE = tuple(act for act in Act if act is not Act.PART)
"""The acts for brokers that do not talk to each other."""


class Strike(NamedTuple):
    """One act at one time."""

    at: float
    act: Act
    seconds: float
    target: float
    """The process, as a fraction of the list of living processes."""


class SeedFaults(NamedTuple):
    """All faults of one seed."""

    store: FaultPlan
    network: NetworkPlan
    strikes: tuple[Strike, ...]


def draw_plan(environment: Environment, seconds: float, kinds: Sequence[Act] = ALONE) -> SeedFaults:
    """Draw a seed's own mixture of faults."""
    chance = environment.random()
    chances = {
        fault: STORE_CHANCES[int(chance.random() * len(STORE_CHANCES))]
        for fault in Fault
        if fault is not Fault.BURST
    }
    chances[Fault.BURST] = 0.002 if chance.random() < 0.3 else 0.0
    # A broker rightly stops after a few bad reads of one object in a row: make that very unlikely.
    for fault in (Fault.BIT_FLIP, Fault.SHORT_READ):
        chances[fault] = min(chances[fault], 0.002)
    store = FaultPlan(
        chances=chances,
        late_seconds=(0.05, 12.0),
        slow_seconds=(0.05, 3.0),
        burst_seconds=(0.2, 3.0),
        timeout_seconds=1.5,
        latency_seconds=LATENCIES[int(chance.random() * len(LATENCIES))],
    )
    losses = (0.0, 0.0, 0.01, 0.05)
    network = NetworkPlan(
        request_lost=losses[int(chance.random() * len(losses))],
        reply_lost=losses[int(chance.random() * len(losses))],
    )
    acts = [act for act in kinds if chance.random() < 0.6] or [Act.KILL]
    strikes = tuple(
        sorted(
            Strike(
                0.3 + chance.random() * (seconds - 0.3),
                acts[int(chance.random() * len(acts))],
                (0.05 + chance.random() ** 3 * 20.0),
                chance.random(),
            )
            for _ in range(2 + int(chance.random() * 6))
        )
    )
    return SeedFaults(store, network, strikes)


class Victims(Protocol):
    """The broker processes, as the plan acts on them."""

    def alive(self) -> list[str]: ...

    def release(self, process: str) -> None:
        """Ask a process to hand over what it owns, and to end."""
        ...

    def start(self) -> str:
        """Start one more process and return its name."""
        ...

    def race(self) -> None:
        """Start processes that claim what others own."""
        ...

    def cut(self, process: str, seconds: float) -> None:
        """Cut a process off from the store for a while."""
        ...

    def part(self, process: str, seconds: float) -> None:
        """Cut a process off from other brokers for a while."""
        ...


async def strike_all(
    plan: SeedFaults,
    *,
    loop: VirtualLoop,
    victims: Victims,
    recorder: Recorder,
    is_over: Callable[[], bool],
) -> None:
    """Carry out the plan, each act at its time."""
    for strike in sorted(plan.strikes, key=lambda strike: strike.at):
        await asyncio.sleep(max(0.0, strike.at - loop.time()))
        alive = victims.alive()
        if is_over():
            return
        if not alive:
            continue
        process = alive[int(strike.target * len(alive))]
        at = loop.time()
        match strike.act:
            case Act.KILL:
                loop.kill(process)
                recorder.mark(MarkerKind.KILL, process, at)
            case Act.PAUSE:
                loop.pause(process, strike.seconds)
                recorder.mark(MarkerKind.PAUSE, process, at, f"{strike.seconds:.3f} s")
            case Act.RELEASE:
                recorder.mark(MarkerKind.RELEASE, process, at)
                victims.release(process)
            case Act.CLAIM:
                victims.race()
            case Act.STALL:
                rival = victims.start()
                way_s = STORE_CALLS_OF_A_START * sum(plan.store.latency_seconds) / 2
                loop.call_later(strike.target * way_s, loop.pause, rival, 3 + strike.seconds)
                recorder.mark(MarkerKind.PAUSE, rival, at, f"{3 + strike.seconds:.3f} s, soon")
            case Act.CUT:
                recorder.mark(MarkerKind.FAULT, process, at, f"cut {strike.seconds:.3f} s")
                victims.cut(process, strike.seconds)
            case Act.PART:
                recorder.mark(MarkerKind.FAULT, process, at, f"parted {strike.seconds:.3f} s")
                victims.part(process, strike.seconds)
