"""Brokers with a disk, in virtual time, and topics that are acknowledged from it."""

from typing import Any
from uuid import UUID

from simulation.faults.memory_disk import MemoryDisk
from tests.support.brokers import (
    Cluster,
    pass_time,
    produce,
    read_log,
    topic,
)

from holdfast.broker.broker import Broker
from holdfast.cluster.facts import TopicConfigured

DAY_MS = "86400000"
LANE_OBJECTS = "lanes/0001/"


def on_disk(flush_ms: str = DAY_MS, flush_bytes: str = "67108864", **more: str) -> dict[str, str]:
    return {
        "holdfast.ack": "disk",
        "holdfast.flush.ms": flush_ms,
        "holdfast.flush.bytes": flush_bytes,
        **more,
    }


async def configure(broker: Broker, topic_id: UUID, **configs: str) -> None:
    changed = {name.replace("_", "."): value for name, value in configs.items()}
    broker.control.add(TopicConfigured(topic_id, changed))
    await broker.flush_control()


async def serving(
    world: Cluster, broker_id: int = 1, disk: MemoryDisk | None = None, **more: Any
) -> tuple[Broker, MemoryDisk]:
    disk = disk or MemoryDisk(environment=world.environment())
    broker = await world.broker(broker_id, disk=disk, **more)
    await pass_time(0.1)
    return broker, disk


async def ready(world: Cluster, **configs: str) -> tuple[Broker, MemoryDisk, UUID]:
    """A broker with a disk-acked topic whose ceiling is reserved: offset 0 is in the store."""
    broker, disk = await serving(world)
    topic_id = await topic(broker, **on_disk(**configs))
    assert (await produce(broker, [b"0"])).error_code == 0
    return broker, disk, topic_id


def puts(world: Cluster) -> int:
    return sum(call == "create" and LANE_OBJECTS in key for call, key in world.store.calls)


async def values(broker: Broker) -> list[bytes | None]:
    return [record.value for record in await read_log(broker)]


async def crashed(world: Cluster) -> tuple[MemoryDisk, UUID]:
    """A broker that died with offsets 1 and 2 of `t` on its disk alone; `plain` is in the store."""
    broker, disk, topic_id = await ready(world)
    await topic(broker, "plain")
    await produce(broker, [b"p"], name="plain")
    await produce(broker, [b"1"])
    await produce(broker, [b"2"])
    return disk, topic_id
