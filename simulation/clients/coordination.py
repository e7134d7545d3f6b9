"""The clients of a seed: for records only, groups, transactions, or consume-transform-produce.

Owns the kinds of workload, what is drawn for each, and how each is brought to its end: every
transactional id is initialised once more, and all committed records and offsets are read.
"""

import asyncio
import enum
from collections.abc import Callable
from typing import Any, NamedTuple

from holdfast.groups.rules import GroupRules
from holdfast.verify.history import READ_COMMITTED, MarkerKind
from holdfast.verify.vocabulary import OffsetsTold, Partition
from simulation.clients.classic_member import SimulatedClassicMember
from simulation.clients.client import SimulatedClients
from simulation.clients.consumer_member import SimulatedConsumerMember
from simulation.clients.member import OffsetsPoller, fetch_offsets
from simulation.clients.streams import StreamsWorker
from simulation.clients.transactional import Transactional, finish_transactions
from simulation.clients.workload import Consumer, Deleter, SimulatedProducer

RULES = GroupRules(
    group_min_session_timeout_ms=100,
    group_initial_rebalance_delay_ms=100,
    group_consumer_session_timeout_ms=1_200,
    group_consumer_heartbeat_interval_ms=500,
)
TIMEOUTS_MS = (800, 900_000, 900_000)
"""Transaction timeouts. The long one is longer than the wall clocks of two brokers differ."""
FEEDER_IDS = 1_000_000
"""The first producer id that the simulation makes up; brokers allocate others, from 0 on."""

GROUP = "group"

Tasks = list[asyncio.Task[None]]
Draw = Callable[[], float]


class Workload(enum.Enum):
    """The kind of work that the clients of a seed do."""

    RECORDS = "records"
    GROUPS = "groups"
    TRANSACTIONS = "transactions"
    STREAMS = "streams"
    """Consume, transform, produce: groups and transactions in one application."""


class Mode(enum.Enum):
    """How the brokers of a seed are related."""

    ALONE = "alone"
    """Each broker takes all lanes, and ends when it loses one."""
    CLUSTER = "cluster"
    """Three brokers share the lanes and talk to each other."""


def draw_mode(draw: Draw, workload: Workload) -> Mode:
    """Draw the mode: in one seed of four, brokers know nothing of each other."""
    is_alone = draw() < 0.25
    if workload in TRANSACTIONAL and not TRANSACTIONS_OVER_SEVERAL:
        return Mode.ALONE
    return Mode.ALONE if is_alone else Mode.CLUSTER


def draw_workload(draw: Draw) -> Workload:
    """Draw the workload: records is twice as likely as each of the others."""
    kinds = (Workload.RECORDS, *Workload)
    return kinds[int(draw() * len(kinds))]


TRANSACTIONAL = (Workload.TRANSACTIONS, Workload.STREAMS)
TRANSACTIONS_OVER_SEVERAL = True
"""True if brokers can end a transaction whose parts are on several of them."""


class Ground(NamedTuple):
    """The partitions that clients read and write, and how long they work."""

    inputs: list[Partition]
    outputs: list[Partition]
    seconds: float

    @property
    def partitions(self) -> list[Partition]:
        return [*self.inputs, *self.outputs]


def start_clients(
    workload: Workload, clients: SimulatedClients, draw: Draw, ground: Ground
) -> tuple[Tasks, Tasks]:
    """Start the clients; return those that end by themselves, and those that run until told to
    end."""
    loop = clients.loop
    finite: Tasks = []
    endless: Tasks = []
    for number, partition in enumerate(ground.partitions):
        for isolation in (READ_COMMITTED, 0) if draw() < 0.3 else (READ_COMMITTED,):
            reader = Consumer(clients, f"reader-{number}.{isolation}", isolation)
            endless.append(loop.create_task(reader.run(partition, 2.0)))
    start: dict[Workload, Callable[..., None]] = {
        Workload.GROUPS: _start_groups,
        Workload.TRANSACTIONS: _start_transactions,
        Workload.STREAMS: _start_streams,
    }
    start[workload](clients, draw, ground, finite, endless)
    poller = OffsetsPoller(clients, "poller")
    endless.append(loop.create_task(poller.watch(GROUP, ground.partitions, 0.8)))
    return finite, endless


def _feed(clients: SimulatedClients, draw: Draw, ground: Ground, finite: Tasks) -> None:
    """Start producers of plain records, for the clients that consume."""
    for number, partition in enumerate(ground.inputs):
        producer = SimulatedProducer(
            clients, f"feeder-{number}", partition, producer_id=FEEDER_IDS + number
        )
        batches = 3 + int(draw() * 6)
        run = producer.run(batches, 1.6 * ground.seconds / batches)
        finite.append(clients.loop.create_task(run))


def _start_groups(
    clients: SimulatedClients, draw: Draw, ground: Ground, finite: Tasks, endless: Tasks
) -> None:
    _feed(clients, draw, ground, finite)
    is_classic = draw() < 0.5
    is_cooperative = draw() < 0.5
    members = 2 + int(draw() * 2)
    for number in range(members):
        is_static = draw() < 0.3
        options: dict[str, Any] = {
            # Two processes may have one instance id: the later one fences the other.
            "instance": f"instance-{number % 2}" if is_static else None,
            "is_late": draw() < 0.6,
        }
        name = f"member-{number}"
        if is_classic:
            options["is_cooperative"] = is_cooperative
            member = SimulatedClassicMember(clients, name, GROUP, ground.inputs, **options)
        else:
            topics = sorted({p.rpartition("/")[0] for p in ground.inputs})
            member = SimulatedConsumerMember(clients, name, GROUP, topics, **options)
        endless.append(clients.loop.create_task(member.take_part(0.6)))


def _start_transactions(
    clients: SimulatedClients, draw: Draw, ground: Ground, finite: Tasks, endless: Tasks
) -> None:
    is_new = draw() < 0.7
    for number in range(1 + int(draw() * 3)):
        timeout_ms = TIMEOUTS_MS[int(draw() * len(TIMEOUTS_MS))]
        for copy in range(1 + (draw() < 0.5)):
            producer = Transactional(
                clients,
                f"transactional-{number}.{copy}",
                f"id-{number}",
                is_new=is_new,
                timeout_ms=timeout_ms,
            )
            run = producer.transact(ground.partitions, 3 + int(draw() * 5), 1.5, GROUP)
            finite.append(clients.loop.create_task(run))
    for number, partition in enumerate(ground.outputs):
        if draw() < 0.3:
            deleter = Deleter(clients, f"deleter-{number}")
            endless.append(clients.loop.create_task(deleter.run(partition, 4.0)))


def _start_streams(
    clients: SimulatedClients, draw: Draw, ground: Ground, finite: Tasks, endless: Tasks
) -> None:
    _feed(clients, draw, ground, finite)
    is_cooperative = draw() < 0.5
    for number in range(2 + (draw() < 0.3)):
        worker = StreamsWorker(
            clients,
            f"worker-{number}",
            GROUP,
            ground.inputs,
            ground.outputs,
            is_cooperative=is_cooperative,
            is_new=draw() < 0.7,
            timeout_ms=TIMEOUTS_MS[int(draw() * len(TIMEOUTS_MS))],
        )
        endless.append(clients.loop.create_task(worker.take_part(0.6)))


async def finish(clients: SimulatedClients, ground: Ground, broker: str) -> None:
    """End every transaction, read all that is committed, and ask for all committed offsets."""
    history = clients.recorder.history
    history.is_settled = await finish_transactions(clients)
    clients.recorder.mark(MarkerKind.START, "the last reading", clients.loop.time())
    reader = Consumer(clients, "last reader of committed records", READ_COMMITTED)
    for partition in ground.partitions:
        await reader.read_all(partition, broker)
    for group in sorted(clients.groups):
        call, answer = await fetch_offsets(reader, group, ground.partitions)
        if isinstance(answer, OffsetsTold):
            reader.ok(call, answer)
