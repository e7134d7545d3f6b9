"""Metrics and health of a sink: what is said, and over a real connection."""

import asyncio
import json
import urllib.error
import urllib.request
from http import HTTPStatus

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.async_tests import in_event_loop
from tests.unit.sink.statuses import partition, status

from holdfast.errors import ConfigurationError
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.sink.http import HealthServer
from holdfast.sink.metrics import SinkCollector
from holdfast.sink.status import SinkStatus

MEMORY = 256 * 1024 * 1024
ORDERS = TopicPartition("orders", 0)


def samples(of: SinkStatus | None) -> dict[tuple[str, tuple[str, ...]], float]:
    registry = CollectorRegistry()
    registry.register(SinkCollector(lambda: of, memory_bytes=MEMORY))
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {
        (sample.name, tuple(sorted(sample.labels.values()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_counters_and_gauges_are_those_of_the_status():
    found = samples(status(fetch_paused=True, bad_records=4, commits_withheld=2))
    assert found["holdfast_sink_landed_records_total", ()] == 1_080
    assert found["holdfast_sink_bad_records_total", ()] == 4
    assert found["holdfast_sink_withheld_commits_total", ()] == 2
    assert found["holdfast_sink_fetch_paused", ()] == 1
    assert found["holdfast_sink_memory_limit_bytes", ()] == MEMORY
    assert found["holdfast_sink_healthy", ()] == 1
    assert found["holdfast_sink_state", ("stable",)] == 1
    assert found["holdfast_sink_state", ("fenced",)] == 0


def test_lag_is_told_of_each_partition_where_it_is_known():
    new = partition(landed=None, committed=None)
    found = samples(status(partitions={ORDERS: partition(), TopicPartition("orders", 1): new}))
    assert found["holdfast_sink_lag", ("0", "orders")] == 50
    assert found["holdfast_sink_position", ("1", "orders")] == 100
    assert ("holdfast_sink_lag", ("1", "orders")) not in found
    assert ("holdfast_sink_committed_offset", ("1", "orders")) not in found


def test_before_the_first_status_nothing_is_told():
    assert samples(None) == {}


def health(of: SinkStatus | None) -> tuple[HTTPStatus, dict[str, object]]:
    server = HealthServer("127.0.0.1:0", memory_bytes=MEMORY)
    if of is not None:
        server.report(of)
    code, kind, body = server.health_page()
    assert kind == "application/json"
    return code, json.loads(body)


def test_a_sink_that_lands_is_healthy():
    code, said = health(status())
    assert code == HTTPStatus.OK
    assert (said["healthy"], said["state"], said["lag"]) == (True, "stable", 50)


@pytest.mark.parametrize(
    ("of", "problem"),
    [
        (None, "the sink is still starting"),
        (status(store_problem="403 since 12:00"), "store: 403 since 12:00"),
        (status(broker_problem="nobody answers"), "broker: nobody answers"),
        (
            status(partitions={ORDERS: partition(problem="a hole of 5 offsets")}),
            "orders-0: a hole of 5 offsets",
        ),
    ],
)
def test_a_sink_with_a_problem_is_not_healthy_and_says_why(of: SinkStatus | None, problem: str):
    code, said = health(of)
    assert code == HTTPStatus.SERVICE_UNAVAILABLE
    assert said["healthy"] is False
    assert said["problems"] == [problem]


def get(address: str) -> tuple[int, str, str]:
    try:
        with urllib.request.urlopen(f"http://{address}", timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.headers["Content-Type"], refused.read().decode()


@in_event_loop
async def test_any_http_client_is_answered():
    server = HealthServer("127.0.0.1:0", memory_bytes=MEMORY)
    address = await server.start()
    try:
        code, _, _ = await asyncio.to_thread(get, f"{address}/health")
        assert code == 503
        server.report(status())
        code, kind, text = await asyncio.to_thread(get, f"{address}/health?verbose=1")
        assert (code, kind) == (200, "application/json")
        assert json.loads(text)["member_id"] == "m-1"
        code, kind, text = await asyncio.to_thread(get, f"{address}/metrics")
        assert code == 200
        assert kind.startswith("text/plain")
        assert 'holdfast_sink_lag{partition="0",topic="orders"} 50.0' in text
        assert (await asyncio.to_thread(get, f"{address}/live"))[0] == 200
        code, _, text = await asyncio.to_thread(get, f"{address}/else")
        assert code == 404
        assert "/metrics" in text
    finally:
        await server.stop()


@in_event_loop
async def test_what_is_no_http_is_let_go_and_the_next_one_is_answered():
    server = HealthServer("127.0.0.1:0", memory_bytes=MEMORY)
    address = await server.start()
    try:
        for junk in (b"\r\n\r\n", b"x" * 40_000, b""):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(junk)
            writer.write_eof()
            assert b"200" not in await reader.read()
            writer.close()
        assert (await asyncio.to_thread(get, f"{address}/live"))[0] == 200
    finally:
        await server.stop()


@in_event_loop
async def test_a_port_that_is_taken_is_named():
    first = HealthServer("127.0.0.1:0", memory_bytes=MEMORY)
    address = await first.start()
    try:
        with pytest.raises(ConfigurationError, match=str(address.port)):
            await HealthServer(str(address), memory_bytes=MEMORY).start()
    finally:
        await first.stop()
