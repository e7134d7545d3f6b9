"""The disks of a simulation's machines, and topics that are acknowledged from them.

A disk outlives the processes of its machine. When a process is killed, all, half or nothing of its
last write remains; for a while a disk may be full or slow. Each durable frame is recorded in the
history. Must never call durable what a kill could undo.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from holdfast.environment import Environment, SeededEnvironment, VirtualClock
from holdfast.identifiers import PartitionId
from holdfast.lane.entry import Buffer
from holdfast.lane.spool.disk import DiskFailed
from holdfast.lane.spool.frames import parse_frame
from holdfast.log.facts import Appended, decode_facts
from holdfast.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from holdfast.verify.history import AlterTopic, Append, Done, MarkerKind, Recorder
from simulation.clients.client import SimulatedClient
from simulation.faults.memory_disk import MemoryDisk
from simulation.virtual_loop import VirtualLoop

TOPIC_RESOURCE = 2
ALTER_VERSION = 1
DAY_MS = 86_400_000
UNCLEAN = "unclean.leader.election.enable"
USED_SHARE = 0.5
DISK_TOPIC_SHARE = 0.75
LOSSY_SHARE = 0.3


class DiskTrouble(NamedTuple):
    """A time during which a disk is full or slow."""

    start: float
    end: float
    is_full: bool


class Loss(NamedTuple):
    """The crash of a machine, which comes back with an empty disk."""

    at: float
    which: float
    """The machine, as a fraction of the list of machines."""


class DiskPlan:
    """The disks of a seed, drawn from a separate random source, so that seeds without disks stay
    what they were."""

    def __init__(
        self, seed: int, seconds: float, *, may_lose: bool, uses_disks: bool | None = None
    ) -> None:
        environment = SeededEnvironment(seed=seed + 6, clock=VirtualClock())
        self.draw = environment.random().random
        is_drawn = self.draw() < USED_SHARE
        self.is_used = is_drawn if uses_disks is None else uses_disks
        self._flush_ms = (200, 2_000, DAY_MS)[int(self.draw() * 3)]
        self._flush_bytes = (300, 2_000, 1 << 26)[int(self.draw() * 3)]
        self.switches = self.draw() < 0.3
        self.troubles: dict[str, list[DiskTrouble]] = {}
        self._topics = 0
        self._seconds = seconds
        self.is_lossy = self.is_used and may_lose and self.draw() < LOSSY_SHARE
        """True if topics may continue without a disk, and disks are lost with their machine."""
        self.losses = [
            Loss(self.draw() * seconds, self.draw())
            for _ in range(int(self.draw() * 3) if self.is_lossy else 0)
        ]

    def configs(self) -> dict[str, str]:
        """Draw the configs of one topic."""
        if not self.is_used or self.draw() >= DISK_TOPIC_SHARE:
            return {}
        return {
            "holdfast.ack": "disk",
            "holdfast.flush.ms": str(self._flush_ms),
            "holdfast.flush.bytes": str(self._flush_bytes),
            UNCLEAN: str(self._is_next_unclean()).lower(),
        }

    def _is_next_unclean(self) -> bool:
        """True if the next topic may continue without a disk. In a lossy seed, that is every topic
        if disks are lost, and otherwise every second topic."""
        self._topics += 1
        return self.is_lossy and (bool(self.losses) or self._topics % 2 == 1)

    def troubles_of(self, machine: str) -> list[DiskTrouble]:
        if machine not in self.troubles:
            count = int(self.draw() * 3)
            starts = [self.draw() * self._seconds for _ in range(count)]
            self.troubles[machine] = [
                DiskTrouble(start, min(self._seconds, start + self.draw() * 3), self.draw() < 0.6)
                for start in starts
            ]
        return self.troubles[machine]


class ObservedDisk(MemoryDisk):
    """A disk that reports what is durable on it."""

    def __init__(
        self,
        *,
        environment: Environment,
        loop: VirtualLoop,
        troubles: Sequence[DiskTrouble],
        tell: Callable[[bytes], None],
    ) -> None:
        super().__init__(environment=environment)
        self._loop = loop
        self._troubles = troubles
        self._tell = tell
        self._draw = environment.random().random

    async def append(self, name: str, buffers: Sequence[Buffer]) -> None:
        whole = b"".join(buffers)
        trouble = self._trouble()
        file = self.files.setdefault(name, bytearray())
        before = len(file)
        if trouble is not None and trouble.is_full:
            file += whole[: int(self._draw() * len(whole))]
            await self._wait()
            raise DiskFailed(f"{name}: no space left for {len(whole)} bytes")
        file += whole[: (0, len(whole) // 2, len(whole))[int(self._draw() * 3)]]
        await self._wait()
        if trouble is not None:
            await asyncio.sleep(self._draw() * 8)
        file[before:] = whole
        self._tell(whole)

    def _trouble(self) -> DiskTrouble | None:
        now = self._loop.time()
        return next((t for t in self._troubles if t.start <= now < t.end), None)


class Disks:
    """The disk of each machine."""

    def __init__(
        self,
        *,
        plan: DiskPlan,
        loop: VirtualLoop,
        recorder: Recorder,
        environment: Callable[[], Environment],
        name_of: Callable[[PartitionId], str],
        values_of: Callable[[Appended], tuple[int, ...]],
    ) -> None:
        self.plan = plan
        self._loop = loop
        self._recorder = recorder
        self._environment = environment
        self._name_of = name_of
        self._values_of = values_of
        self._disks: dict[str, ObservedDisk] = {}

    def of(self, machine: str) -> ObservedDisk | None:
        """Return the disk of a machine, or None if this seed has no disks."""
        if not self.plan.is_used:
            return None
        if machine not in self._disks:
            self._disks[machine] = ObservedDisk(
                environment=self._environment(),
                loop=self._loop,
                troubles=self.plan.troubles_of(machine),
                tell=lambda whole: self._tell(machine, whole),
            )
        return self._disks[machine]

    def lose(self, machine: str) -> None:
        """Erase the disk of a machine."""
        disk = self._disks.get(machine)
        if disk is not None:
            disk.files.clear()
        self._recorder.mark(MarkerKind.FAULT, machine, self._loop.time(), "disk lost")

    def mark_troubles(self) -> None:
        for machine, troubles in self.plan.troubles.items():
            for trouble in troubles:
                kind = "full" if trouble.is_full else "slow"
                self._recorder.mark(MarkerKind.FAULT, machine, trouble.start, f"disk {kind}")

    def _tell(self, machine: str, whole: bytes) -> None:
        header, _, facts, _ = parse_frame(memoryview(whole), name=machine)
        appends = tuple(
            Append(self._name_of(fact.partition), fact.base_offset, self._values_of(fact))
            for fact in (decode_facts(facts) if facts else ())
            if isinstance(fact, Appended)
        )
        if appends:
            self._recorder.spooled(
                disk=machine, lane=header.lane, claim=header.claim, appends=appends
            )


class Switcher(SimulatedClient):
    """A client that switches a topic's acknowledgements between disk and store."""

    async def run(self, topic: str, pause_s: float) -> None:
        is_on_disk = True
        while not self.clients.is_over:
            await self.pause(0.2, pause_s)
            is_on_disk = not is_on_disk
            await self._alter(topic, "disk" if is_on_disk else "store")

    async def _alter(self, topic: str, ack: str) -> None:
        change = IncrementalAlterableConfig(name="holdfast.ack", config_operation=0, value=ack)
        request = IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsResource(
                    resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[change]
                )
            ]
        )
        call, answer = await self.request(
            topic,
            AlterTopic(topic, ack),
            request,
            ALTER_VERSION,
            lambda response: Done() if response.responses[0].error_code == 0 else None,
        )
        if isinstance(answer, Done):
            self.ok(call, answer)
