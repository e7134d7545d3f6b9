"""Peers that send what is no Kafka: each harms its own connection only."""

import logging
import random
import struct
import time

import pytest
from tests.support.async_tests import run_by_fixture

from holdfast.protocol.frames import ANNOUNCED_BUFFER_BYTES
from holdfast.protocol.messages.produce import ProduceRequest
from holdfast.server.turns import SLICE_SECONDS_MAX

TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(range(64))
HOSTILE = {
    "a frame of no bytes": struct.pack(">i", 0),
    "a negative size": struct.pack(">i", -5) + b"abc",
    "a size of 2 GiB": struct.pack(">i", 2**31 - 1),
    "a size just above the bound": struct.pack(">i", 100 * 1024 * 1024 + 1),
    "a TLS hello": TLS_HELLO,
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "an unknown api key": struct.pack(">ihhih", 10, 999, 0, 1, -1),
    "a negative api key": struct.pack(">ihhih", 10, -1, 0, 1, -1),
    "a version above the highest": struct.pack(">ihhih", 10, 0, 99, 1, -1),
    "a version below the lowest": struct.pack(">ihhih", 10, 0, 0, 1, -1),
    "a header that ends in its client id": struct.pack(">ihhih", 10, 0, 3, 1, 32767),
    "a header without a client id": struct.pack(">ihhi", 8, 0, 3, 1),
    "a client id of a negative length": struct.pack(">ihhih", 10, 0, 3, 1, -7),
    "a header without its tagged fields": struct.pack(">ihhih", 10, 0, 9, 1, -1),
    "tagged fields past the end": struct.pack(">ihhih", 13, 0, 9, 1, -1) + b"\x7f\x01\x7f",
}


@pytest.mark.parametrize("opening", HOSTILE.values(), ids=HOSTILE.keys())
@run_by_fixture("on_loop")
async def test_a_violation_closes_that_connection_and_no_other(edge, opening):
    good = await edge.client()
    assert await good.ask(1) == (1, b"hello")
    bad = await edge.client()
    bad.send(opening)
    assert await bad.closed() == b""
    assert await good.ask(2) == (2, b"hello")
    assert len(edge.dispatcher.seen) == 2
    await edge.until(lambda: edge.server.connections == 1)
    assert edge.server.memory.used_bytes == 0


@pytest.mark.parametrize(
    ("opening", "word"), [(TLS_HELLO, "TLS"), (b"POST / HTTP/1.1\r\n\r\n", "HTTP")]
)
def test_another_protocol_on_the_port_is_named_in_one_event(on_loop, caplog, opening, word):
    async def test(edge):
        bad = await edge.client()
        bad.send(opening)
        await bad.closed()

    with caplog.at_level(logging.INFO, logger="holdfast.server"):
        on_loop(test)
    violations = [r for r in caplog.records if getattr(r, "event", "") == "protocol_violation"]
    assert len(violations) == 1
    assert word in violations[0].fields["reason"]


@run_by_fixture("on_loop")
async def test_random_bytes_never_reach_anyone_else(edge):
    chance = random.Random(20261115)
    good = await edge.client()
    for number in range(60):
        bad = await edge.client()
        bad.send(chance.randbytes(chance.randrange(1, 2000)))
        bad.writer.write_eof()
        await bad.closed()
        assert await good.ask(number) == (number, b"hello")
    await edge.until(lambda: edge.server.connections == 1)
    assert edge.server.memory.used_bytes == 0


@run_by_fixture("on_loop")
async def test_half_a_frame_and_then_the_end_leaves_nothing_behind(edge):
    whole = edge_frame = (await edge.client()).frame(1, body=bytes(500_000))
    for cut in (1, 3, 4, 9, 300_000, len(whole) - 1):
        bad = await edge.client()
        bad.send(edge_frame[:cut])
        bad.writer.write_eof()
        assert await bad.closed() == b""
    await edge.until(lambda: edge.server.connections == 1)
    assert edge.dispatcher.seen == []
    assert edge.server.memory.used_bytes == 0


@run_by_fixture("on_loop")
async def test_frames_before_a_violation_in_the_same_segment_are_answered(edge):
    bad = await edge.client()
    bad.send(bad.frame(1) + bad.frame(2) + struct.pack(">i", -1))
    assert await bad.reply() == (1, b"hello")
    assert await bad.reply() == (2, b"hello")
    assert await bad.closed() == b""


@run_by_fixture("on_loop", queued_bytes_max=8 * 1024 * 1024)
async def test_frames_that_are_only_announced_hold_up_nobody(edge):
    for _ in range(20):
        stalled = await edge.client()
        stalled.send(struct.pack(">i", 100 * 1024 * 1024) + b"only this")
    await edge.until(lambda: edge.server.memory.used_bytes >= 20 * ANNOUNCED_BUFFER_BYTES)
    assert edge.server.memory.used_bytes < 21 * ANNOUNCED_BUFFER_BYTES
    good = await edge.client()
    assert (await good.ask(1, body=bytes(3_000_000)))[0] == 1
    assert edge.server.connections == 21


@run_by_fixture("on_loop", queued_bytes_max=4 * 1024 * 1024)
async def test_frames_that_wait_for_each_others_memory_get_through_one_by_one(edge):
    clients = [await edge.client() for _ in range(4)]
    for number, client in enumerate(clients):
        client.send(client.frame(number, body=bytes(3_000_000))[:1_500_000])
    await edge.until(lambda: edge.server.memory.has_waiting)
    for number, client in enumerate(clients):
        client.send(client.frame(number, body=bytes(3_000_000))[1_500_000:])
    for number, client in enumerate(clients):
        assert (await client.reply())[0] == number
    assert edge.server.memory.used_bytes == 0


@run_by_fixture("on_loop", queued_bytes_max=100_000, stalled_seconds_max=0.05)
async def test_a_stalled_frame_ends_when_others_wait_for_its_memory(edge):
    stalled = await edge.client()
    stalled.send(struct.pack(">i", 900_000) + bytes(800_000))
    await edge.until(lambda: edge.server.memory.used_bytes == 900_000)
    waiting = await edge.client()
    waiting.send(waiting.frame(5, body=bytes(800_000)))
    assert await stalled.closed() == b""
    assert (await waiting.reply())[0] == 5


def test_an_exception_in_a_handler_closes_its_connection_with_one_event(on_loop, caplog):
    async def test(edge):
        def script(request, peer):
            if request.correlation_id == 66:
                raise RuntimeError("a bug in a handler")
            if request.correlation_id == 67:
                return later()
            return [request.body]

        async def later():
            raise RuntimeError("a bug in a waiting handler")

        edge.dispatcher.script = script
        good = await edge.client()
        for number in (66, 67):
            bad = await edge.client()
            bad.send(bad.frame(number))
            assert await bad.closed() == b""
            assert await good.ask(number + 100) == (number + 100, b"hello")

    with caplog.at_level(logging.INFO, logger="holdfast.server"):
        on_loop(test)
    failures = [r for r in caplog.records if getattr(r, "event", "") == "request_failed"]
    assert [r.fields["api"] for r in failures] == ["PRODUCE", "PRODUCE"]


def test_a_body_that_is_not_its_message_is_a_violation_of_the_peer(on_loop, caplog):
    async def test(edge):
        edge.dispatcher.script = lambda request, peer: ProduceRequest.decode(
            request.body, request.version
        ).encode(request.version)
        bad = await edge.client()
        bad.send(bad.frame(1, body=b"no produce request"))
        assert await bad.closed() == b""

    with caplog.at_level(logging.INFO, logger="holdfast.server"):
        on_loop(test)
    named = [(r.event, r.levelname) for r in caplog.records if "ProduceRequest" in r.message]
    assert named == [("protocol_violation", "WARNING")]


@run_by_fixture("on_loop", connections_max=2)
async def test_more_connections_than_the_bound_are_refused(edge):
    first = await edge.client()
    second = await edge.client()
    await first.ask(1)
    await second.ask(1)
    third = await edge.client()
    assert await third.closed() == b""
    assert await first.ask(2) == (2, b"hello")


@run_by_fixture("on_loop", idle_seconds_max=0.05)
async def test_an_idle_connection_is_closed_and_a_waiting_one_is_not(edge):
    edge.dispatcher.holding = True
    waiting = await edge.client()
    waiting.send(waiting.frame(1))
    await edge.until(lambda: edge.dispatcher.held)
    idle = await edge.client()
    assert await idle.closed() == b""
    edge.dispatcher.answer(1)
    assert await waiting.reply() == (1, b"hello")


@run_by_fixture("on_loop")
async def test_slow_frames_before_a_violation_in_the_same_segment_are_answered(edge):
    """They wait for their turn, and the violation waits for them."""

    def slow(request, peer):
        until = time.perf_counter() + 2 * SLICE_SECONDS_MAX
        while time.perf_counter() < until:
            pass
        return [request.body]

    edge.dispatcher.script = slow
    client = await edge.client()
    client.send(b"".join(client.frame(n) for n in range(3)) + HOSTILE["a negative size"])
    assert [(await client.reply())[0] for _ in range(3)] == [0, 1, 2]
    assert await client.closed() == b""
