"""A store with everything in it (segments, snapshots, a floor, lane objects), and ways to harm it.

Owns the making of the sound store and the finding of objects in it. What a broker does with a
harmed copy is for the tests to judge.
"""

import asyncio
import shutil
from pathlib import Path

from tests.peers.process import free_port, wait_until
from tests.support.warm_broker import ChaosBroker

from holdfast.client import admin
from holdfast.client.cluster import Cluster
from holdfast.client.fetch import fetch, records_of
from holdfast.client.produce import IdempotentProducer
from holdfast.environment import SystemEnvironment
from holdfast.errors import HoldfastError
from holdfast.records.record import Record

TOPIC = "kept"
PARTITIONS = 4
DEADLINE_MS = 100
OLD_WRITES = 70
NEW_WRITES = 6


def value(partition: int, number: int) -> bytes:
    return b"%d-%06d-" % (partition, number) + b"v" * 200


class SoundStore:
    """Made once; `copy` gives a store to harm. Lane 1 is where partition 0 lives."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "sound"
        self.counts = [0] * PARTITIONS
        self._serve(folder, eager=True, writes=OLD_WRITES)
        self._serve(folder, eager=False, writes=NEW_WRITES)

    def _serve(self, folder: Path, *, eager: bool, writes: int) -> None:
        name = "eager" if eager else "plain"
        broker = ChaosBroker(folder, name=name, store=str(self.root), port=free_port(), eager=eager)
        broker.go()
        broker.wait_ready()
        try:
            asyncio.run(self._write(broker.port, writes))
            if eager:
                wait_until(
                    lambda: all(self.segments(p) for p in range(PARTITIONS)) and self._is_floored(),
                    seconds_max=60,
                    what="every partition has a segment, and every data lane a floor",
                )
        finally:
            broker.kill()

    async def _write(self, port: int, writes: int) -> None:
        async with _cluster(port) as cluster:
            await admin.create_topics(cluster, [admin.NewTopic(TOPIC, PARTITIONS)]) if not any(
                self.counts
            ) else None
            producer = IdempotentProducer(cluster)
            for _ in range(writes):
                await asyncio.gather(*(self._write_one(producer, p) for p in range(PARTITIONS)))

    async def _write_one(self, producer: IdempotentProducer, partition: int) -> None:
        first = self.counts[partition]
        records = [Record(0, -1, b"k", value(partition, first + i)) for i in range(3)]
        told = await producer.send(TOPIC, partition, records)
        assert told.base_offset == first
        self.counts[partition] += len(records)

    def copy(self, folder: Path) -> "DamagedStore":
        root = folder / "store"
        shutil.copytree(self.root, root)
        return DamagedStore(root)

    def _is_floored(self) -> bool:
        """Segments come with the first step of a rewrite, the floor after the last one."""
        lanes = [path.name for path in (self.root / "lanes").iterdir() if int(path.name) > 0]
        return all(any(self.root.glob(f"floors/{lane}/*")) for lane in lanes)

    def segments(self, partition: int) -> list[Path]:
        return sorted(self.root.glob(f"topics/*/{partition:06d}/*-*-*-*"))


class DamagedStore:
    """A copy whose objects can be found by what they are."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def entries(self, lane: int) -> list[Path]:
        return sorted((self.root / "lanes" / f"{lane:04d}").iterdir())

    def replayed(self, lane: int) -> list[Path]:
        """Objects that a start must read: after the newest snapshot."""
        newest = max(int(path.name) for path in self.snapshots(lane))
        return [path for path in self.entries(lane) if int(path.name) > newest]

    def data(self, lane: int) -> Path:
        """The largest of them: it holds records."""
        return max(self.replayed(lane), key=lambda path: path.stat().st_size)

    def snapshots(self, lane: int) -> list[Path]:
        return sorted((self.root / "snapshots" / f"{lane:04d}").iterdir())

    def floors(self, lane: int) -> list[Path]:
        return sorted((self.root / "floors" / f"{lane:04d}").iterdir())

    def segment(self, partition: int) -> Path:
        return max(
            self.root.glob(f"topics/*/{partition:06d}/*-*-*-*"), key=lambda p: p.stat().st_size
        )

    def key(self, path: Path) -> str:
        return str(path.relative_to(self.root))


def _cluster(port: int, deadline_ms: int = 20_000) -> Cluster:
    return Cluster(f"127.0.0.1:{port}", environment=SystemEnvironment(), deadline_ms=deadline_ms)


class Reading:
    """What a client got of one partition: how far it came, and what stopped it."""

    def __init__(self) -> None:
        self.values: list[bytes | None] = []
        self.end = -1
        self.error = ""


async def _read(cluster: Cluster, partition: int) -> Reading:
    reading = Reading()
    try:
        reading.end = (
            await admin.list_offset(cluster, TOPIC, partition, deadline_ms=DEADLINE_MS)
        ).offset
        while len(reading.values) < reading.end:
            offset = len(reading.values)
            got = await fetch(
                *(cluster, TOPIC, partition, offset), max_bytes=4000, deadline_ms=DEADLINE_MS
            )
            for record in records_of(got):
                assert record.offset == len(reading.values)
                reading.values.append(record.value)
            if len(reading.values) == offset:
                reading.error = f"nothing at offset {offset} of {reading.end}"
                break
    except HoldfastError as error:
        reading.error = str(error)
    return reading


async def _read_all(port: int) -> list[Reading]:
    async with _cluster(port) as cluster:
        return list(await asyncio.gather(*(_read(cluster, p) for p in range(PARTITIONS))))


def read_all(port: int) -> list[Reading]:
    """Every partition from 0, as far as the broker gives it."""
    return asyncio.run(_read_all(port))
