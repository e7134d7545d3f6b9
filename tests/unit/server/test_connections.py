"""Order, memory and back-pressure of connections over real sockets."""

import asyncio
import struct
import time

import pytest
from tests.support.async_tests import run_by_fixture

from holdfast.errors import ConfigurationError
from holdfast.protocol.connection import CLOSE
from holdfast.protocol.messages.api_versions import ApiVersionsResponse
from holdfast.server.turns import SLICE_SECONDS_MAX

MIB = 1024 * 1024


@run_by_fixture("on_loop")
async def test_glued_requests_are_dispatched_and_answered_in_order(edge):
    client = await edge.client()
    client.send(b"".join(client.frame(n, body=b"%d" % n) for n in range(500)))
    for n in range(500):
        assert await client.reply() == (n, b"%d" % n)
    assert [r.correlation_id for r in edge.dispatcher.seen] == list(range(500))


@run_by_fixture("on_loop")
async def test_a_request_that_comes_byte_by_byte_is_one_request(edge):
    client = await edge.client()
    for byte in client.frame(9):
        client.send(bytes([byte]))
        await client.writer.drain()
        await asyncio.sleep(0)
    assert await client.reply() == (9, b"hello")


@run_by_fixture("on_loop")
async def test_replies_go_out_in_request_order_however_they_complete(edge):
    edge.dispatcher.holding = True
    client = await edge.client()
    client.send(b"".join(client.frame(n) for n in range(5)))
    await edge.until(lambda: len(edge.dispatcher.held) == 5)
    for n in (4, 2, 3, 1, 0):
        edge.dispatcher.answer(n)
    assert [(await client.reply())[0] for _ in range(5)] == [0, 1, 2, 3, 4]


@run_by_fixture("on_loop")
async def test_a_request_without_an_answer_leaves_no_gap(edge):
    edge.dispatcher.script = lambda request, peer: (
        None if request.correlation_id % 2 else [request.body]
    )
    client = await edge.client()
    client.send(b"".join(client.frame(n) for n in range(6)))
    assert [(await client.reply())[0] for _ in range(3)] == [0, 2, 4]


@run_by_fixture("on_loop")
async def test_a_close_comes_after_the_replies_before_it_and_before_those_behind(edge):
    edge.dispatcher.script = lambda request, peer: (
        CLOSE if request.correlation_id == 2 else [request.body]
    )
    client = await edge.client()
    client.send(b"".join(client.frame(n) for n in range(4)))
    assert (await client.reply())[0] == 0
    assert (await client.reply())[0] == 1
    assert await client.closed() == b""


@run_by_fixture("on_loop")
async def test_an_api_versions_request_from_the_future_is_answered_in_version_0(edge):
    client = await edge.client()
    client.send(client.frame(7, key=18, version=99, body=b"\0whatever that will be"))
    correlation_id, body = await client.reply()
    answer = ApiVersionsResponse.decode(body, 0)
    assert (correlation_id, answer.error_code) == (7, 35)
    assert (18, 0, 4) in [(a.api_key, a.min_version, a.max_version) for a in answer.api_keys]
    assert edge.dispatcher.seen == []
    assert await client.ask(8) == (8, b"hello")


@pytest.mark.parametrize("client_id", [b"", b"x" * 32767, b"\xff\xfe not utf-8"])
@run_by_fixture("on_loop")
async def test_any_client_id_is_taken(edge, client_id):
    client = await edge.client()
    assert await client.ask(1, client_id=client_id) == (1, b"hello")
    assert edge.dispatcher.seen[0].client_id == client_id.decode(errors="replace")


@run_by_fixture("on_loop")
async def test_a_flexible_request_gets_a_flexible_response_header(edge):
    client = await edge.client()
    assert await client.ask(1, version=9, body=b"\0hello") == (1, b"\0hello")
    assert bytes(edge.dispatcher.seen[0].body) == b"hello"


@run_by_fixture("on_loop")
async def test_a_large_frame_arrives_whole_and_writable(edge):
    client = await edge.client()
    payload = bytes(range(256)) * (5 * MIB // 256)
    client.send(client.frame(1, body=payload))
    assert await client.reply() == (1, payload)
    body = edge.dispatcher.seen[0].body
    body[0] = 77
    assert body.nbytes == len(payload)


@run_by_fixture("on_loop")
async def test_bodies_stay_as_they_were_while_later_frames_arrive(edge):
    client = await edge.client()
    for n in range(200):
        await client.ask(n, body=b"%03d" % n * 100)
    assert [bytes(r.body[:3]) for r in edge.dispatcher.seen] == [b"%03d" % n for n in range(200)]


@run_by_fixture("on_loop", unanswered_requests_max=4)
async def test_no_more_requests_are_dispatched_than_may_be_unanswered(edge):
    edge.dispatcher.holding = True
    client = await edge.client()
    client.send(b"".join(client.frame(n) for n in range(50)))
    other = await edge.client()
    for n in range(50):
        await edge.until(lambda n=n: n in edge.dispatcher.held)
        assert len(edge.dispatcher.seen) <= n + 4
        edge.dispatcher.answer(n)
        assert (await client.reply())[0] == n
    edge.dispatcher.holding = False
    await edge.round_trips(other)
    assert edge.server.memory.used_bytes == 0


@run_by_fixture("on_loop")
async def test_a_peer_that_does_not_read_gets_no_more_work_done(edge):
    edge.dispatcher.script = lambda request, peer: [bytes(MIB)]
    deaf = await edge.client()
    deaf.send(b"".join(deaf.frame(n) for n in range(500)))
    good = await edge.client()
    await edge.round_trips(good, 20)
    assert len(edge.dispatcher.seen) < 80  # what the socket buffers of the system take
    for n in range(500):
        assert (await deaf.reply())[0] == n


@run_by_fixture("on_loop", queued_bytes_max=MIB + MIB // 2)
async def test_reading_stops_while_requests_in_memory_are_above_the_bound(edge):
    edge.dispatcher.holding = True
    first = await edge.client()
    first.send(first.frame(1, body=bytes(MIB)))
    await edge.until(lambda: edge.dispatcher.held)
    second = await edge.client()
    second.send(second.frame(2, body=bytes(MIB)))
    await edge.until(lambda: edge.server.memory.has_waiting)
    assert len(edge.dispatcher.seen) == 1
    edge.dispatcher.answer(1)
    assert (await first.reply())[0] == 1
    await edge.until(lambda: 2 in edge.dispatcher.held)
    edge.dispatcher.answer(2)
    assert (await second.reply())[0] == 2
    assert edge.server.memory.used_bytes == 0


@run_by_fixture("on_loop", queued_bytes_max=2 * MIB)
async def test_many_large_frames_under_a_small_bound_all_get_through(edge):
    clients = [await edge.client() for _ in range(12)]
    for n, client in enumerate(clients):
        client.send(client.frame(n, body=bytes(MIB)) + client.frame(100 + n, body=bytes(MIB)))
    for n, client in enumerate(clients):
        assert [(await client.reply())[0] for _ in range(2)] == [n, 100 + n]
    assert edge.server.memory.used_bytes == 0


@run_by_fixture("on_loop", queued_bytes_max=1000)
async def test_a_frame_above_the_whole_bound_gets_through_alone(edge):
    client = await edge.client()
    client.send(client.frame(1, body=bytes(MIB)))
    assert (await client.reply())[0] == 1


@run_by_fixture("on_loop")
async def test_a_peer_that_ends_right_after_its_request_still_gets_a_ready_reply(edge):
    client = await edge.client()
    client.send(client.frame(1, body=bytes(MIB)))
    client.writer.write_eof()
    assert await client.reply() == (1, bytes(MIB))
    assert await client.closed() == b""


@run_by_fixture("on_loop")
async def test_a_reply_to_a_connection_that_is_gone_is_dropped(edge):
    edge.dispatcher.holding = True
    client = await edge.client()
    client.send(client.frame(1))
    await edge.until(lambda: edge.dispatcher.held)
    client.writer.transport.abort()
    await edge.until(lambda: edge.dispatcher.gone)
    assert edge.server.memory.used_bytes == 0
    edge.dispatcher.answer(1)
    edge.dispatcher.holding = False
    await edge.round_trips(await edge.client())
    assert edge.server.memory.used_bytes == 0


@run_by_fixture("on_loop")
async def test_stopping_waits_for_replies_that_are_under_way(edge):
    edge.dispatcher.holding = True
    client = await edge.client()
    idle = await edge.client()
    client.send(client.frame(1, body=bytes(MIB)))
    await edge.until(lambda: edge.dispatcher.held and edge.server.connections == 2)
    stop = asyncio.ensure_future(edge.server.stop())
    assert await idle.closed() == b""
    assert not stop.done()
    edge.dispatcher.answer(1)
    assert (await client.reply())[0] == 1
    assert await client.closed() == b""
    await stop
    assert edge.server.connections == 0
    with pytest.raises(ConnectionError):
        await edge.client()


@run_by_fixture("on_loop")
async def test_stopping_does_not_wait_longer_than_its_bound(edge):
    edge.dispatcher.holding = True
    client = await edge.client()
    client.send(client.frame(1))
    await edge.until(lambda: edge.dispatcher.held)
    await edge.server.stop(wait_seconds=0.05)
    assert await client.closed() == b""


@run_by_fixture("on_loop")
async def test_a_taken_port_is_named(edge):
    with pytest.raises(ConfigurationError, match=str(edge.port)):
        await edge.server.listen("127.0.0.1", edge.port)


@run_by_fixture("on_loop")
async def test_the_session_of_a_peer_lasts_as_long_as_its_connection(edge):
    def script(request, peer):
        peer.session = (peer.session or 0) + 1
        return [struct.pack(">i", peer.session)]

    edge.dispatcher.script = script
    client, other = await edge.client(), await edge.client()
    assert (await client.ask(1))[1] == struct.pack(">i", 1)
    assert (await client.ask(2))[1] == struct.pack(">i", 2)
    assert (await other.ask(1))[1] == struct.pack(">i", 1)


@run_by_fixture("on_loop")
async def test_slow_requests_of_many_connections_are_not_dispatched_in_one_turn_of_the_loop(edge):
    """Each connection had its slice in each turn of the loop, so a neighbour waited for all."""
    turns = [0]
    dispatched_in = []

    def tick():
        turns[0] += 1
        asyncio.get_running_loop().call_soon(tick)

    def slow(request, peer):
        until = time.perf_counter() + 2 * SLICE_SECONDS_MAX
        while time.perf_counter() < until:
            pass
        dispatched_in.append((turns[0], peer.port))
        return [request.body]

    edge.dispatcher.script = slow
    clients = [await edge.client() for _ in range(8)]
    for client in clients:  # from here on they are known to be slow
        await client.ask(0)
    del dispatched_in[:]
    asyncio.get_running_loop().call_soon(tick)
    for client in clients:
        client.send(client.frame(1) + client.frame(2))
    for client in clients:
        assert [(await client.reply())[0], (await client.reply())[0]] == [1, 2]
    assert len({turn for turn, _ in dispatched_in}) == len(dispatched_in) == 16
    order = [port for _, port in dispatched_in]
    assert sorted(order[:8]) == sorted(order[8:])
