"""One seed of the simulation: brokers that race, clients, faults, and what came of it.

Owns the course of a run: work under faults, heal, a last primary that recovers, a cold read by a
fresh reader with nothing but the store. Everything follows from the seed.
"""

import asyncio
import contextlib
import dataclasses
import logging
from collections import Counter
from collections.abc import Callable, Generator
from typing import NamedTuple

from holdfast.broker.settings import BrokerSettings
from holdfast.environment import Environment, SeededEnvironment, VirtualClock
from holdfast.errors import HoldfastError, StopError
from holdfast.identifiers import BrokerId, LaneId, PartitionId
from holdfast.lane.appender import GroupSettings
from holdfast.lane.recovery import recover
from holdfast.log.facts import Appended
from holdfast.log.memory import ReadCache, Tail
from holdfast.log.reader import LogReader
from holdfast.log.rewriter import RewriteSettings
from holdfast.log.state import LogStateKind
from holdfast.store.faulty import FaultyStore
from holdfast.store.interface import Store
from holdfast.verify.broker_process import BrokerProcess, SimulatedLiveness
from holdfast.verify.checkers import Violation, check, void_reason
from holdfast.verify.checkers.void import hand_offs
from holdfast.verify.client import Clients
from holdfast.verify.coordination import (
    RULES,
    Ground,
    Workload,
    draw_workload,
    finish,
    start_clients,
)
from holdfast.verify.disks import DiskPlan, Disks, Switcher
from holdfast.verify.faults import Plan, draw_plan, strike_all
from holdfast.verify.fleet import MACHINE_NAMES, Fleet
from holdfast.verify.history import ColdLog, History, MarkerKind, PartitionRules, Recorder
from holdfast.verify.network import Network
from holdfast.verify.observed_store import ObservedStore
from holdfast.verify.reading import read_batches
from holdfast.verify.skewed_environment import SkewedEnvironment
from holdfast.verify.virtual_loop import Runaway, Schedule, Stalled, VirtualLoop
from holdfast.verify.workload import Administrator, Consumer, Deleter, Poller, Producer

WORK_SECONDS = 10.0
PATIENCE_SECONDS = 120.0
STEPS_MAX = 200_000
LANES = 2
TAKE_OVERS_MAX = 4
RETENTION_BYTES = 600

ProcessType = Callable[..., BrokerProcess]


class TopicPlan(NamedTuple):
    """One topic of a seed."""

    name: str
    partitions: int
    retention: bool
    is_doomed: bool


@dataclasses.dataclass(slots=True, kw_only=True)
class Outcome:
    """What one seed showed."""

    seed: int
    workload: Workload
    history: History
    violations: list[Violation]
    void: str | None
    liveness: list[str]
    """What did not get done in time after everything was healed: no breach of safety."""
    faults: Counter[str]
    acked: int
    steps: int
    virtual_seconds: float

    @property
    def hand_offs(self) -> int:
        return hand_offs(self.history)


def simulate(
    seed: int, *, process_type: ProcessType = BrokerProcess, workload: Workload | None = None
) -> Outcome:
    """Run one seed, and check its history; of which kind it is follows from the seed."""
    return Simulation(seed, process_type, workload).run()


class Simulation:
    """The parts of one run."""

    def __init__(
        self, seed: int, process_type: ProcessType, workload: Workload | None = None
    ) -> None:
        self.seed = seed
        # A door of its own, so that what a seed of records alone draws stays what it was.
        self._draw_kind = SeededEnvironment(seed=seed + 3, clock=VirtualClock()).random().random
        self.workload = workload or draw_workload(self._draw_kind)
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
        self.plan: Plan = draw_plan(self._environment, WORK_SECONDS)
        self.liveness: list[str] = []
        self._process_type = process_type
        self._on_disk: list[str] = []
        """Topics that are acknowledged from a disk."""
        self._topics = self._draw_topics()
        self._settings = self._draw_settings()
        world = SkewedEnvironment(seed=seed + 1, loop=self.loop)
        self.truth = ObservedStore(
            environment=world, recorder=self.recorder, values_of=self._values_of
        )
        self.store = FaultyStore(
            self.truth, plan=self.plan.store, chance=self._child_environment().random()
        )
        self.disks = Disks(
            plan=DiskPlan(seed, WORK_SECONDS, may_lose=self.workload is Workload.RECORDS),
            loop=self.loop,
            recorder=self.recorder,
            environment=lambda: SkewedEnvironment(seed=seed + 5, loop=self.loop),
            name_of=self.truth.name_of,
            values_of=self._values_of,
        )
        self.network = Network(self.loop, self._child_environment(), self.plan.network)
        self.fleet = Fleet(
            loop=self.loop,
            environment=self._child_environment(),
            recorder=self.recorder,
            store=self.store,
            make_process=self._make_process,
        )
        self.clients = Clients(
            network=self.network,
            environment=SkewedEnvironment(seed=seed + 2, loop=self.loop),
            recorder=self.recorder,
            ports=self.fleet,
        )

    def run(self) -> Outcome:
        """The whole seed."""
        history = self.recorder.history
        with _errors_logged_to(history.crashes):
            try:
                self.loop.run_until_complete(self._main())
            except (Runaway, Stalled) as error:
                self.liveness.append(str(error))
            self.loop.close()
        crashes = [crash for process in self.fleet.processes.values() for crash in process.crashes]
        history.crashes += crashes + self.network.crashes + self.loop.problems
        for topic in self._topics:
            for partition in _partitions_of(topic):
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
        return Outcome(
            seed=self.seed,
            workload=self.workload,
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
                if self.disks.plan.is_lossy:
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
        _, unfinished = await asyncio.wait(producing, timeout=PATIENCE_SECONDS)
        if unfinished:
            self.liveness.append(f"{len(unfinished)} producers did not finish after all was healed")
        clients.is_over = True
        await asyncio.wait([*others, supervising], timeout=PATIENCE_SECONDS)
        self.fleet.stop_all()
        await self.store.settle()
        await self._last_primary()
        await self._read_cold()

    @property
    def _ground(self) -> Ground:
        inputs, *outputs = [_partitions_of(topic) for topic in self._topics]
        return Ground(inputs, [p for partitions in outputs for p in partitions], WORK_SECONDS)

    def _start_clients(self) -> tuple[list[asyncio.Task[None]], list[asyncio.Task[None]]]:
        if self.workload is not Workload.RECORDS:
            return start_clients(self.workload, self.clients, self._draw_kind, self._ground)
        chance, loop, clients = self._chance, self.loop, self.clients
        partitions = [name for topic in self._topics for name in _partitions_of(topic)]
        producing: list[asyncio.Task[None]] = []
        others: list[asyncio.Task[None]] = []
        for number in range(2 + int(chance.random() * 3)):
            producer = Producer(
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

    async def _last_primary(self) -> None:
        """One more process takes over everything, and all is read through it."""
        name = await self._take_over()
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
            for partition in _partitions_of(topic):
                await reader.read_all(partition, name)
        if self.workload is not Workload.RECORDS:
            await finish(self.clients, self._ground, name)
        if self.disks.plan.is_used:
            await self._end(name)  # what is on its disk goes to the store
        self.loop.kill(name)

    async def _lose_disks(self) -> None:
        """Machines go down, with all that runs there, and lose what they had on disk."""
        for loss in sorted(self.disks.plan.losses):
            await asyncio.sleep(max(0.0, loss.at - self.loop.time()))
            machine = MACHINE_NAMES[int(loss.which * len(MACHINE_NAMES))]
            for name in self.fleet.alive():
                if self.fleet.processes[name].liveness.machine == machine:
                    self.loop.kill(name)
                    self.recorder.mark(MarkerKind.KILL, name, self.loop.time(), "with its machine")
            self.disks.lose(machine)

    async def _take_over(self, machine: str | None = None) -> str | None:
        """A process that serves; None where it could not."""
        name = self.fleet.start(machine)
        process = self.fleet.processes[name]
        for _ in range(1000):
            if process.is_ready or process.has_ended:
                break
            await asyncio.sleep(PATIENCE_SECONDS / 1000)
        return name if process.is_ready else None

    async def _end(self, name: str) -> None:
        process = self.fleet.processes[name]
        process.stop()
        for _ in range(1000):
            if process.has_ended:
                return
            await asyncio.sleep(PATIENCE_SECONDS / 1000)

    async def _read_cold(self) -> None:
        environment = self._child_environment()
        for lane in range(1, LANES + 1):
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

    def _make_process(
        self, broker_id: int, store: Store, environment: Environment, liveness: SimulatedLiveness
    ) -> BrokerProcess:
        return self._process_type(
            store=store,
            environment=environment,
            settings=dataclasses.replace(self._settings, broker_id=BrokerId(broker_id)),
            liveness=liveness,
            disk=self.disks.of(liveness.machine),
        )

    def _draw_topics(self) -> list[TopicPlan]:
        chance = self._chance
        if self.workload is not Workload.RECORDS:
            counts = {"input": 2 + int(chance.random() * 2), "output": 2}
            return [
                TopicPlan(name, count, retention=False, is_doomed=False)
                for name, count in counts.items()
            ]
        return [
            TopicPlan(
                f"topic-{number}",
                1 + int(chance.random() * 2),
                retention=chance.random() < 0.3,
                is_doomed=number > 0 and chance.random() < 0.3,
            )
            for number in range(1 + int(chance.random() * 2))
        ]

    def _draw_settings(self) -> BrokerSettings:
        chance = self._chance
        linger_ms = (0, 0, 5, 50)[int(chance.random() * 4)]
        claim_valid_ms = (300, 1000, 3000)[int(chance.random() * 3)]
        rewrite_entries = 4 + int(chance.random() * 12)
        return BrokerSettings(
            broker_id=BrokerId(0),
            host="127.0.0.1",
            port=9092,
            lanes=LANES,
            auto_create_topics_enable=False,
            group=GroupSettings(
                linger_ms=linger_ms,
                claim_valid_ms=claim_valid_ms,
            ),
            groups=RULES,
            rewrite=RewriteSettings(
                entries_max=rewrite_entries,
                # From what is drawn already, so that old seeds stay what they were otherwise.
                step_entries_max=(1, 2, 1_000)[rewrite_entries % 3],
                segment_bytes_max=(400, 2000, 100_000)[int(chance.random() * 3)],
                delete_delay_s=(0.0, 0.2, 2.0)[int(chance.random() * 3)],
            ),
            snapshot_every=2 + int(chance.random() * 10),
            tail_bytes=(0, 600, 100_000)[int(chance.random() * 3)],
            cache_bytes=(0, 600, 100_000)[int(chance.random() * 3)],
            maintenance_interval_s=0.7,
            retention_check_interval_s=1.5,
        )

    def _child_environment(self) -> SeededEnvironment:
        return SeededEnvironment(seed=int(self._chance.random() * (1 << 48)), clock=VirtualClock())


class _Errors(logging.Handler):
    """Keeps what a broker logs as an error: it did not expect that, so it is a crash here."""

    def __init__(self, crashes: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._crashes = crashes

    def emit(self, record: logging.LogRecord) -> None:
        cause = record.exc_info[1] if record.exc_info else None
        self._crashes.append(f"{record.getMessage()}: {cause!r}")


@contextlib.contextmanager
def _errors_logged_to(crashes: list[str]) -> Generator[None]:
    """Nothing of a simulated broker's log is printed, and its errors count."""
    logger = logging.getLogger("holdfast")
    before = logger.level, logger.propagate
    handler = _Errors(crashes)
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before


def _partitions_of(topic: TopicPlan) -> list[str]:
    return [f"{topic.name}/{number}" for number in range(topic.partitions)]


async def read_cold(
    store: Store, environment: Environment, lane: LaneId
) -> dict[PartitionId, ColdLog]:
    """All records of a lane by a reader that has nothing but the store."""
    recovered = await recover(store, environment, lane, LogStateKind())
    reader = LogReader(
        store=store, environment=environment, lane=lane, tail=Tail(0), cache=ReadCache(0)
    )
    found: dict[PartitionId, ColdLog] = {}
    for partition, log in recovered.state.partitions.items():
        records: list[tuple[int, int]] = []
        position = log.log_start_offset
        while position < log.high_watermark:
            try:
                cut = await reader.read(log, position, 1 << 20)
            except HoldfastError:
                position += 1  # what cannot be read is missing, and the checker says what was lost
                continue
            batches = b"".join(cut.buffers)
            records += read_batches(batches, position).records
            position = max(cut.next_offset, position + 1)
        found[partition] = ColdLog(tuple(records), log.log_start_offset, log.high_watermark)
    return found
