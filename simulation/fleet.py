"""The broker processes of a simulation: which are alive, which serve, which one starts next.

Brokers of this kind know nothing of each other: each takes all lanes, and ends when it loses one.
Owns starting, replacing and stopping processes. It decides which process *tries* to own the lanes,
which affects speed and never safety. Must never touch what a broker answers.
"""

import asyncio
import contextvars
from collections.abc import Callable
from typing import NamedTuple

from holdfast.broker.cluster.peer_network import PeerNetwork
from holdfast.client.address import Address
from holdfast.environment import Environment
from holdfast.store.interface import Store
from holdfast.verify.history import MarkerKind, Recorder
from simulation.broker_process import BrokerProcess, Machines, SimulatedLiveness
from simulation.clients.client import BrokerPort
from simulation.faults.cut_store import CutStore
from simulation.faults.skewed_environment import SkewedEnvironment
from simulation.observed_store import process_name
from simulation.virtual_loop import VirtualLoop


class ProcessParts(NamedTuple):
    """What a process is built from, beside the settings that all processes share."""

    broker_id: int
    store: Store
    environment: Environment
    liveness: SimulatedLiveness
    address: Address
    peers: PeerNetwork | None


MakeProcess = Callable[[ProcessParts], BrokerProcess]
WALL_SKEW_MS_MAX = 600_000
DRIFT_MAX = 0.02
BROKER_IDS = 3
MACHINES = 2
MACHINE_NAMES = tuple(f"machine-{number}" for number in range(MACHINES))
ALONE = Address("127.0.0.1", 9092)


class Fleet:
    """All broker processes, past and present."""

    def __init__(
        self,
        *,
        loop: VirtualLoop,
        environment: Environment,
        recorder: Recorder,
        store: Store,
        make_process: MakeProcess,
    ) -> None:
        self.processes: dict[str, BrokerProcess] = {}
        """Every process that was ever started, by name."""
        self._loop = loop
        self._chance = environment.random()
        self._recorder = recorder
        self._store = store
        self._make_process = make_process
        self._machines = Machines(loop)
        self._stores: dict[str, CutStore] = {}
        self._next_machine: str | None = None

    def start(self, machine: str | None = None) -> str:
        """Start a process, which claims all lanes, on a given machine or on any; return its
        name."""
        number = len(self.processes) + 1
        broker_id = number % BROKER_IDS
        name = process_name(broker_id, number)
        self._spawn(name, number, broker_id, ALONE, None, machine)
        return name

    def _spawn(
        self,
        name: str,
        number: int,
        broker_id: int,
        address: Address,
        peers: PeerNetwork | None,
        machine: str | None = None,
    ) -> BrokerProcess:
        environment = SkewedEnvironment(
            seed=int(self._chance.random() * (1 << 48)),
            loop=self._loop,
            monotonic_start=self._chance.random() * 1e6,
            drift=(self._chance.random() * 2 - 1) * DRIFT_MAX,
            wall_offset_ms=1_700_000_000_000 + int(self._chance.random() * WALL_SKEW_MS_MAX),
        )
        drawn = f"machine-{int(self._chance.random() * MACHINES)}"
        machine = machine or drawn
        store = self._stores[name] = CutStore(self._store)
        liveness = SimulatedLiveness(self._machines, machine, name, number)
        process = self._make_process(
            ProcessParts(broker_id, store, environment, liveness, address, peers)
        )
        self.processes[name] = process
        self._recorder.mark(MarkerKind.START, name, self._loop.time(), machine)
        life = self._loop.spawn(name, process.run())
        # When a process exits, none of its tasks goes on.
        life.add_done_callback(lambda _: self._loop.kill(name), context=contextvars.Context())
        return process

    def names(self) -> list[str]:
        return [name for name in self.alive() if self.processes[name].is_ready]

    def port(self, process: str) -> BrokerPort:
        return self.processes[process]

    def alive(self) -> list[str]:
        return [
            name
            for name, process in self.processes.items()
            if self._loop.is_alive(name) and not process.has_ended
        ]

    def release(self, process: str) -> None:
        self.processes[process].stop()

    def race(self) -> None:
        """Start one or two rivals of the process that serves."""
        self.start()
        if self._chance.random() < 0.4:
            self.start()

    def cut(self, process: str, seconds: float) -> None:
        store = self._stores[process]
        store.is_cut = True
        self._loop.call_later(seconds, store.heal)

    def part(self, process: str, seconds: float) -> None:
        """Do nothing: these brokers do not talk to each other."""

    def heal(self) -> None:
        for store in self._stores.values():
            store.heal()

    def stop_all(self) -> None:
        for process in self.alive():
            self._loop.kill(process)

    @property
    def machines(self) -> tuple[str, ...]:
        """The machines on which processes run, each with its own disk."""
        return MACHINE_NAMES

    def hand_to_other_machine(self, process: str) -> None:
        """Stop a process whose partitions wait for a disk; the next one starts on the next machine.

        Placement would do the same. The process first flushes its own acknowledged records to the
        store, so that no later owner waits for this disk.
        """
        self.release(process)
        self._next_machine = self.other_machine(process)

    def other_machine(self, process: str) -> str:
        """Return the machine that comes after the process's own machine."""
        here = self.machines.index(self.processes[process].liveness.machine)
        return self.machines[(here + 1) % len(self.machines)]

    async def supervise(self, is_over: Callable[[], bool]) -> None:
        """Start a process when none is left, and sometimes when all of them are paused."""
        while not is_over():
            alive = self.alive()
            moving = [name for name in alive if not self._loop.is_paused(name)]
            if not alive or (not moving and self._chance.random() < 0.3):
                self.start(self._next_machine)
                self._next_machine = None
            elif len(alive) == 1 and self.processes[alive[0]].awaits_disk:
                self.hand_to_other_machine(alive[0])
            await asyncio.sleep(0.02 + self._chance.random() * 0.6)
