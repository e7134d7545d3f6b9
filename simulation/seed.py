"""One run of the simulation: racing brokers, clients, faults, and the outcome of a seed.

Owns the course of a run: clients work under faults, all faults are healed, a last process takes
over all lanes, and a fresh reader that has only the store reads everything (the cold read). If the
seed has disks, each machine that is still needed takes over in turn before that. Everything follows
from the seed.
"""

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any

from holdfast.environment import SeededEnvironment, VirtualClock
from holdfast.errors import StopError
from holdfast.identifiers import BrokerId, LaneId
from holdfast.log.facts import Appended
from holdfast.verify.checkers import Violation, check, void_reason
from holdfast.verify.checkers.void import hand_offs
from holdfast.verify.history import History, MarkerKind, PartitionRules, Recorder
from simulation.broker_process import BrokerProcess
from simulation.clients.client import SimulatedClients
from simulation.clients.coordination import (
    Ground,
    Mode,
    Workload,
    draw_mode,
    draw_workload,
    finish,
    start_clients,
)
from simulation.clients.workload import Administrator, Consumer, Deleter, Poller, SimulatedProducer
from simulation.cluster_fleet import ClusterFleet, unsettled
from simulation.cold_read import read_cold
from simulation.drawing import draw_settings, draw_topics
from simulation.error_log import errors_logged_to
from simulation.faults.disks import UNCLEAN, DiskPlan, Disks, Switcher
from simulation.faults.faulty_store import FaultyStore
from simulation.faults.plan import ALONE, Act, SeedFaults, draw_plan, strike_all
from simulation.faults.skewed_environment import SkewedEnvironment
from simulation.fleet import Fleet, ProcessParts
from simulation.network import Network
from simulation.observed_store import ObservedStore
from simulation.virtual_loop import Runaway, Schedule, Stalled, VirtualLoop
from simulation.wires import Wires

WORK_SECONDS = 10.0
PATIENCE_SECONDS = 120.0
SETTLE_SECONDS = 120.0
SETTLE_LOOK_SECONDS = 0.5
STEPS_MAX = 300_000
LANES = 2
TAKE_OVERS_MAX = 4
RETENTION_BYTES = 600

ProcessType = Callable[..., BrokerProcess]


@dataclasses.dataclass(slots=True, kw_only=True)
class SeedOutcome:
    """The result of one seed."""

    seed: int
    workload: Workload
    mode: Mode
    history: History
    violations: list[Violation]
    void: str | None
    liveness: list[str]
    """Work that was not done in time after all faults were healed: not a safety violation."""
    faults: Counter[str]
    acked: int
    steps: int
    virtual_seconds: float

    @property
    def hand_offs(self) -> int:
        return hand_offs(self.history)


def simulate(
    seed: int,
    *,
    process_type: ProcessType = BrokerProcess,
    workload: Workload | None = None,
    mode: Mode | None = None,
    uses_disks: bool | None = None,
) -> SeedOutcome:
    """Run one seed and check its history; each choice that is None follows from the seed."""
    return Simulation(seed, process_type, workload, mode, uses_disks).run()


class Simulation:
    """One run, with the clients, brokers, store and faults that belong to it."""

    def __init__(
        self,
        seed: int,
        process_type: ProcessType,
        workload: Workload | None = None,
        mode: Mode | None = None,
        uses_disks: bool | None = None,
    ) -> None:
        self.seed = seed
        # A separate random source, so that seeds of records draw what they always drew.
        self._draw_kind = SeededEnvironment(seed=seed + 3, clock=VirtualClock()).random().random
        self.workload = workload or draw_workload(self._draw_kind)
        draw = SeededEnvironment(seed=seed + 4, clock=VirtualClock()).random().random
        self.mode = mode or draw_mode(draw, self.workload)
        is_cluster = self.mode is Mode.CLUSTER
        self.lanes = LANES + int(draw() * 3) if is_cluster else LANES
        self._environment = SeededEnvironment(seed=seed, clock=VirtualClock())
        self._chance = self._environment.random()
        self.loop = VirtualLoop(
            seed=seed,
            schedule=Schedule.TASKS if self._chance.random() < 0.5 else Schedule.PROCESSES,
            steps_max=STEPS_MAX,
            seconds_max=WORK_SECONDS + 3 * PATIENCE_SECONDS,
            step_seconds=0.00002 if self._chance.random() < 0.3 else 0.0,
        )
        self.recorder = Recorder()
        self.plan: SeedFaults = draw_plan(
            self._environment, WORK_SECONDS, tuple(Act) if is_cluster else ALONE
        )
        self.liveness: list[str] = []
        self._process_type = process_type
        self._on_disk: list[str] = []
        """Topics whose records are acknowledged from a disk."""
        self._topics = draw_topics(self._chance.random, self.workload, 0.6 if is_cluster else 0.3)
        self._settings = draw_settings(self._chance.random, self.lanes)
        world = SkewedEnvironment(seed=seed + 1, loop=self.loop)
        self.truth = ObservedStore(
            environment=world,
            recorder=self.recorder,
            values_of=self._values_of,
            now=self.loop.time,
        )
        self.store = FaultyStore(
            self.truth, plan=self.plan.store, chance=self._child_environment().random()
        )
        self.disks = self._make_disks(uses_disks)
        self.network = Network(self.loop, self._child_environment(), self.plan.network)
        parts: dict[str, Any] = {
            "loop": self.loop,
            "environment": self._child_environment(),
            "recorder": self.recorder,
            "store": self.store,
            "make_process": self._make_process,
        }
        wires = Wires(self.network)
        has_disks = self.disks.plan.is_used
        self.fleet = (
            ClusterFleet(wires, has_disks=has_disks, **parts) if is_cluster else Fleet(**parts)
        )
        self.clients = SimulatedClients(
            network=self.network,
            environment=SkewedEnvironment(seed=seed + 2, loop=self.loop),
            recorder=self.recorder,
            ports=self.fleet,
            process_at=wires.process_at if is_cluster else None,
        )

    def _make_disks(self, uses_disks: bool | None) -> Disks:
        return Disks(
            plan=DiskPlan(
                self.seed,
                WORK_SECONDS,
                may_lose=self.workload is Workload.RECORDS,
                uses_disks=uses_disks,
            ),
            loop=self.loop,
            recorder=self.recorder,
            environment=lambda: SkewedEnvironment(seed=self.seed + 5, loop=self.loop),
            name_of=self.truth.name_of,
            values_of=self._values_of,
        )

    def run(self) -> SeedOutcome:
        """Run the whole seed and return its outcome."""
        history = self.recorder.history
        with errors_logged_to(history.crashes):
            try:
                self.loop.run_until_complete(self._main())
            except (Runaway, Stalled) as error:
                self.liveness.append(str(error))
            self.loop.close()
        crashes = [crash for process in self.fleet.processes.values() for crash in process.crashes]
        history.crashes += crashes + self.network.crashes + self.loop.problems
        for topic in self._topics:
            for partition in topic.partitions_of():
                is_unclean = topic.name in self.clients.lossy
                history.rules[partition] = PartitionRules(topic.retention, is_unclean)
        faults = Counter({f.value: n for f, n in self.store.faults_by_kind().items()})
        faults.update(
            marker.kind.value
            for marker in history.markers
            if marker.kind in (MarkerKind.KILL, MarkerKind.PAUSE, MarkerKind.RELEASE)
        )
        self.disks.mark_troubles()
        for _ in range(min(1, self.store.faults_by_kind().total())):
            self.recorder.mark(MarkerKind.FAULT, "store", self.loop.time())
        violations = check(history) if not self.liveness or history.cold else []
        return SeedOutcome(
            seed=self.seed,
            workload=self.workload,
            mode=self.mode,
            history=history,
            violations=violations,
            void=void_reason(history),
            liveness=self.liveness + self.clients.stuck,
            faults=faults,
            acked=self.clients.acked,
            steps=self.loop.steps,
            virtual_seconds=self.loop.time(),
        )

    async def _main(self) -> None:
        loop, clients = self.loop, self.clients
        for _ in range(1 + int(self._chance.random() * 2)):
            self.fleet.start()
        supervising = loop.create_task(self.fleet.supervise(lambda: clients.is_over))
        striking = loop.create_task(
            strike_all(
                self.plan,
                loop=loop,
                victims=self.fleet,
                recorder=self.recorder,
                is_over=lambda: clients.is_over,
            )
        )
        losing = loop.create_task(self._lose_disks())
        administrator = Administrator(clients, "administrator")
        for topic in self._topics:
            configs = {"retention.bytes": str(RETENTION_BYTES)} if topic.retention else {}
            configs |= self.disks.plan.configs()
            if "holdfast.ack" in configs:
                self._on_disk.append(topic.name)
                if configs[UNCLEAN] == "true":
                    clients.lossy.add(topic.name)
            await administrator.create(topic.name, topic.partitions, configs)
        producing, others = self._start_clients()
        if self.disks.plan.switches:
            for name in self._on_disk:
                switcher = Switcher(clients, f"switcher of {name}")
                others.append(loop.create_task(switcher.run(name, 4.0)))
        await striking
        await losing
        await asyncio.sleep(max(0.0, WORK_SECONDS - loop.time()))
        self.store.heal()
        self.fleet.heal()
        self.network.is_healed = True
        settling = loop.create_task(self._settle())
        _, unfinished = await asyncio.wait(producing, timeout=PATIENCE_SECONDS)
        if unfinished:
            self.liveness.append(f"{len(unfinished)} producers did not finish after all was healed")
        await settling
        clients.is_over = True
        await asyncio.wait([*others, supervising], timeout=PATIENCE_SECONDS)
        self.fleet.stop_all()
        await self.store.settle()
        await self._last_primary()
        await self._read_cold()

    @property
    def _ground(self) -> Ground:
        inputs, *outputs = [topic.partitions_of() for topic in self._topics]
        return Ground(inputs, [p for partitions in outputs for p in partitions], WORK_SECONDS)

    def _start_clients(self) -> tuple[list[asyncio.Task[None]], list[asyncio.Task[None]]]:
        if self.workload is not Workload.RECORDS:
            return start_clients(self.workload, self.clients, self._draw_kind, self._ground)
        chance, loop, clients = self._chance, self.loop, self.clients
        partitions = [name for topic in self._topics for name in topic.partitions_of()]
        producing: list[asyncio.Task[None]] = []
        others: list[asyncio.Task[None]] = []
        for number in range(2 + int(chance.random() * 3)):
            producer = SimulatedProducer(
                clients,
                f"producer-{number}",
                partitions[int(chance.random() * len(partitions))],
                producer_id=number if chance.random() < 0.8 else -1,
                in_flight_max=1 + int(chance.random() * 5),
            )
            batches = 4 + int(chance.random() * 12)
            producing.append(loop.create_task(producer.run(batches, 1.6 * WORK_SECONDS / batches)))
        for number, partition in enumerate(partitions):
            consumer = Consumer(clients, f"consumer-{number}")
            others.append(loop.create_task(consumer.run(partition, 1.5)))
            poller = Poller(clients, f"poller-{number}")
            others.append(loop.create_task(poller.run(partition, 1.5)))
            if chance.random() < 0.45:
                deleter = Deleter(clients, f"deleter-{number}")
                others.append(loop.create_task(deleter.run(partition, 2.5)))
        for topic in self._topics:
            if topic.is_doomed:
                deleter = Administrator(clients, "administrator")
                after_s = WORK_SECONDS * chance.random()
                others.append(loop.create_task(deleter.delete(topic.name, after_s)))
        return producing, others

    async def _settle(self) -> None:
        """Wait until each lane of a cluster has one owner and the brokers have even shares of
        lanes."""
        if not isinstance(self.fleet, ClusterFleet):
            return
        problems: list[str] = []
        for _ in range(int(SETTLE_SECONDS / SETTLE_LOOK_SECONDS)):
            problems = unsettled(self.fleet.owners(), self.lanes)
            if not problems:
                return
            await asyncio.sleep(SETTLE_LOOK_SECONDS)
        self.liveness += [f"{each}, {SETTLE_SECONDS} s after all was healed" for each in problems]

    async def _last_primary(self) -> None:
        """Have one more process take over all lanes, and read everything through it."""
        is_on_disks = self.disks.plan.is_used and self.mode is Mode.CLUSTER
        machines = self.fleet.machines
        name = await self._take_over(machines[self.seed % len(machines)] if is_on_disks else None)
        for _ in range(TAKE_OVERS_MAX):
            if name is None or not self.fleet.processes[name].awaits_disk:
                break
            machine = self.fleet.other_machine(name)
            await self._end(name)
            name = await self._take_over(machine)
        if name is None or self.fleet.processes[name].awaits_disk:
            self.liveness.append("the last primary could not serve")
            return
        reader = Consumer(self.clients, "last reader")
        for topic in self._topics:
            for partition in topic.partitions_of():
                await reader.read_all(partition, name)
        if self.workload is not Workload.RECORDS:
            await finish(self.clients, self._ground, name)
        if self.disks.plan.is_used:
            await self._end(name)  # it flushes its disk to the store
        self.loop.kill(name)

    async def _lose_disks(self) -> None:
        """Take machines down as planned, with all their processes, and erase their disks."""
        for loss in sorted(self.disks.plan.losses):
            await asyncio.sleep(max(0.0, loss.at - self.loop.time()))
            machine = self.fleet.machines[int(loss.which * len(self.fleet.machines))]
            for name in self.fleet.alive():
                if self.fleet.processes[name].liveness.machine == machine:
                    self.loop.kill(name)
                    self.recorder.mark(MarkerKind.KILL, name, self.loop.time(), "with its machine")
            self.disks.lose(machine)

    async def _take_over(self, machine: str | None = None) -> str | None:
        """Start a process and wait until it serves all lanes; return None if it does not."""
        name = self.fleet.start(machine)
        process = self.fleet.processes[name]
        for _ in range(1000):
            if process.has_ended or (process.is_ready and self._has_all(process)):
                break
            await asyncio.sleep(PATIENCE_SECONDS / 1000)
        return name if process.is_ready and self._has_all(process) else None

    async def _end(self, name: str) -> None:
        process = self.fleet.processes[name]
        process.stop()
        for _ in range(1000):
            if process.has_ended:
                return
            await asyncio.sleep(PATIENCE_SECONDS / 1000)

    def _has_all(self, process: BrokerProcess) -> bool:
        return len(process.owned()) == self.lanes + 1

    async def _read_cold(self) -> None:
        environment = self._child_environment()
        for lane in range(1, self.lanes + 1):
            try:
                found = await read_cold(self.truth, environment, LaneId(lane))
            except StopError as error:
                self.recorder.history.crashes.append(f"the cold read of lane {lane}: {error!r}")
                continue
            for partition, cold in found.items():
                topic = self.truth.topics.get(partition.topic_id)
                if topic is not None:
                    name = f"{topic.name}/{partition.partition}"
                    self.recorder.history.cold[name] = cold

    def _values_of(self, fact: Appended) -> tuple[int, ...]:
        key = (fact.crc, fact.producer_id, fact.base_sequence)
        unknown = tuple(-1 for _ in range(fact.base_offset, fact.last_offset + 1))
        return self.clients.values_of_crc.get(key, unknown)

    def _make_process(self, parts: ProcessParts) -> BrokerProcess:
        host, port = parts.address
        return self._process_type(
            store=parts.store,
            environment=parts.environment,
            settings=dataclasses.replace(
                self._settings, broker_id=BrokerId(parts.broker_id), host=host, port=port
            ),
            liveness=parts.liveness,
            peers=parts.peers,
            disk=self.disks.of(parts.liveness.machine),
        )

    def _child_environment(self) -> SeededEnvironment:
        return SeededEnvironment(seed=int(self._chance.random() * (1 << 48)), clock=VirtualClock())
