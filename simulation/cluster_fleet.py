"""Three broker ids on one store, whose processes talk to each other, and sometimes a zombie.

Owns which id a process gets, where it listens, and when a dead or paused process is started again.
This affects which process tries to own a lane, never which one may. Must never touch what a broker
answers.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any

from holdfast.client.address import Address
from simulation.fleet import BROKER_IDS, Fleet
from simulation.observed_store import process_name
from simulation.wires import PeerWay, Wires

PORT = 9092
BROKER_MACHINES = tuple(f"machine-{broker_id}" for broker_id in range(BROKER_IDS))
RESTARTED = 0.3
"""The probability that a dead broker is started again, at each look."""
REPLACED = 0.06
"""The probability that a paused broker is replaced by another process with its id, at each look."""
NOTICED = 0.8
"""The probability that callers of a process that died learn of it before their timeout."""


class ClusterFleet(Fleet):
    """A fleet of brokers that share the lanes."""

    def __init__(self, wires: Wires, *, has_disks: bool, **parts: Any) -> None:
        super().__init__(**parts)
        self.wires = wires
        self._has_disks = has_disks
        """True if each broker has its own machine, on which all of its processes run."""
        self._buried: set[str] = set()

    @property
    def machines(self) -> tuple[str, ...]:
        return BROKER_MACHINES

    def start(self, machine: str | None = None, *, broker_id: int = -1) -> str:
        """Start a process of the machine's broker; otherwise of a broker that has none, or of
        any."""
        if machine is not None:
            broker_id = self.machines.index(machine)
        if broker_id < 0:
            absent = [each for each in range(BROKER_IDS) if not self._of(each)]
            broker_id = absent[0] if absent else int(self._chance.random() * BROKER_IDS)
        number = len(self.processes) + 1
        name = process_name(broker_id, number)
        address = Address(f"broker-{broker_id}", PORT)
        if self._of(broker_id):
            # The other process has the port, even while it is paused.
            address = Address(f"broker-{broker_id}", PORT + number)
        if self._has_disks:
            machine = self.machines[broker_id]
        process = self._spawn(name, number, broker_id, address, PeerWay(self.wires, name), machine)
        self.wires.listen(address, name, process)
        return name

    def race(self) -> None:
        """Start one more process of a random broker, which is usually alive."""
        self.start(broker_id=int(self._chance.random() * BROKER_IDS))

    def part(self, process: str, seconds: float) -> None:
        """Cut a process off from all others, or from one of them in one or both directions."""
        others = [name for name in self.alive() if name != process]
        draw = self._chance.random()
        if others and draw < 0.5:
            other = others[int(self._chance.random() * len(others))]
            ways = {(process, other)} if draw < 0.25 else {(process, other), (other, process)}
        else:
            ways = {(process, other) for other in others}
            ways |= {(other, process) for other in others}
        self.wires.cut(ways, seconds)

    def heal(self) -> None:
        super().heal()
        self.wires.heal()

    def _of(self, broker_id: int) -> list[str]:
        return [n for n in self.alive() if self.processes[n].settings.broker_id == broker_id]

    async def supervise(self, is_over: Callable[[], bool]) -> None:
        """Start brokers that have no process, and sometimes one whose processes are all paused."""
        while not is_over():
            for name in self.processes:
                if name not in self._buried and not self._loop.is_alive(name):
                    self._buried.add(name)
                    if self._chance.random() < NOTICED:
                        self.wires.hang_up(name)
            for broker_id in range(BROKER_IDS):
                alive = self._of(broker_id)
                stands = all(self._loop.is_paused(name) for name in alive)
                if stands and self._chance.random() < (REPLACED if alive else RESTARTED):
                    self.start(broker_id=broker_id)
            await asyncio.sleep(0.02 + self._chance.random() * 0.6)

    def owners(self) -> dict[str, frozenset[int]]:
        """Return the lanes that each ready process says it owns."""
        return {name: self.processes[name].owned() for name in self.names()}


def unsettled(owners: Mapping[str, Collection[int]], lanes: int) -> list[str]:
    """Return what is wrong with a cluster that had time to settle. Pure.

    Each lane must have one owner, every broker must serve, and no broker may have more than one
    data lane more than another.
    """
    found: list[str] = []
    for lane in range(lanes + 1):
        holders = sorted(name for name, owned in owners.items() if lane in owned)
        if len(holders) != 1:
            found.append(f"lane {lane} is owned by {holders or 'nobody'}")
    shares = {name: len([lane for lane in owned if lane]) for name, owned in owners.items()}
    if len(shares) != BROKER_IDS:
        found.append(f"{len(shares)} of {BROKER_IDS} brokers serve")
    elif max(shares.values()) - min(shares.values()) > 1:
        found.append(f"the lanes are not shared evenly: {shares}")
    return found
