"""Which clients a seed has: records alone, or groups, transactions, or both in one application.

Owns the kinds of workload, what is drawn for each, and how each is brought to its end: every
transactional id is taken once more, and all that was committed is read and asked for.
"""

import asyncio
import enum
from collections.abc import Callable
from typing import Any, NamedTuple

from holdfast.groups.rules import GroupRules
from holdfast.verify.classic_member import ClassicMember
from holdfast.verify.client import Clients
from holdfast.verify.consumer_member import ConsumerMember
from holdfast.verify.history import READ_COMMITTED, MarkerKind
from holdfast.verify.member import OffsetsPoller, fetch_offsets
from holdfast.verify.streams import Worker
from holdfast.verify.transactional import Transactional, finish_transactions
from holdfast.verify.vocabulary import OffsetsTold, Partition
from holdfast.verify.workload import Consumer, Deleter, Producer

RULES = GroupRules(
    group_min_session_timeout_ms=100,
    group_initial_rebalance_delay_ms=100,
    group_consumer_session_timeout_ms=1_200,
    group_consumer_heartbeat_interval_ms=500,
)
TIMEOUTS_MS = (800, 900_000, 900_000)
"""The long one is longer than the wall clocks of two brokers are apart."""
FEEDER_IDS = 1_000_000
"""Producer ids that the simulation makes up; brokers give out others, from 0 on."""

GROUP = "group"

Tasks = list[asyncio.Task[None]]
Draw = Callable[[], float]


class Workload(enum.Enum):
    """What the clients of a seed do."""

    RECORDS = "records"
    GROUPS = "groups"
    TRANSACTIONS = "transactions"
    STREAMS = "streams"
    """Consume, transform, produce."""


class Mode(enum.Enum):
    """How the brokers of a seed stand to each other."""

    ALONE = "alone"
    """Each takes all lanes, and ends when it loses one."""
    CLUSTER = "cluster"
    """Three share the lanes, and hear each other."""


def draw_mode(draw: Draw, workload: Workload) -> Mode:
    """One seed in four has brokers that know nothing of each other."""
    is_alone = draw() < 0.25
    if workload in TRANSACTIONAL and not TRANSACTIONS_OVER_SEVERAL:
        return Mode.ALONE
    return Mode.ALONE if is_alone else Mode.CLUSTER


def draw_workload(draw: Draw) -> Workload:
    """Of which kind a seed is."""
    kinds = (Workload.RECORDS, *Workload)
    return kinds[int(draw() * len(kinds))]


TRANSACTIONAL = (Workload.TRANSACTIONS, Workload.STREAMS)
TRANSACTIONS_OVER_SEVERAL = True
"""Whether a transaction can end whose parts are on several brokers."""


class Ground(NamedTuple):
    """Where coordinated clients work."""

    inputs: list[Partition]
    outputs: list[Partition]
    seconds: float

    @property
    def partitions(self) -> list[Partition]:
        return [*self.inputs, *self.outputs]


def start_clients(
    workload: Workload, clients: Clients, draw: Draw, ground: Ground
) -> tuple[Tasks, Tasks]:
    """Those that have an end of their own, and those that go on until they are told."""
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


def _feed(clients: Clients, draw: Draw, ground: Ground, finite: Tasks) -> None:
    """Plain records for those who consume."""
    for number, partition in enumerate(ground.inputs):
        producer = Producer(clients, f"feeder-{number}", partition, producer_id=FEEDER_IDS + number)
        batches = 3 + int(draw() * 6)
        run = producer.run(batches, 1.6 * ground.seconds / batches)
        finite.append(clients.loop.create_task(run))


def _start_groups(
    clients: Clients, draw: Draw, ground: Ground, finite: Tasks, endless: Tasks
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
            member = ClassicMember(clients, name, GROUP, ground.inputs, **options)
        else:
            topics = sorted({p.rpartition("/")[0] for p in ground.inputs})
            member = ConsumerMember(clients, name, GROUP, topics, **options)
        endless.append(clients.loop.create_task(member.take_part(0.6)))


def _start_transactions(
    clients: Clients, draw: Draw, ground: Ground, finite: Tasks, endless: Tasks
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
    clients: Clients, draw: Draw, ground: Ground, finite: Tasks, endless: Tasks
) -> None:
    _feed(clients, draw, ground, finite)
    is_cooperative = draw() < 0.5
    for number in range(2 + (draw() < 0.3)):
        worker = Worker(
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


async def finish(clients: Clients, ground: Ground, broker: str) -> None:
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
