"""Replies that nobody reads: counted, and not kept for ever while memory for replies is scarce."""

import logging

from tests.support.async_tests import run_by_fixture

from holdfast.server.progress import PROGRESS_BYTES, Progress

MIB = 1024 * 1024


def counted(edge):
    return edge.server.replies.used_bytes


@run_by_fixture("on_loop")
async def test_replies_are_counted_until_they_are_read(edge):
    edge.dispatcher.script = lambda request, peer: [bytes(16 * MIB)]
    client = await edge.client()
    client.send(client.frame(1) + client.frame(2))
    await edge.until(lambda: counted(edge) > 16 * MIB)
    assert counted(edge) < 17 * MIB  # the second request is left waiting
    for n in (1, 2):
        assert (await client.reply())[0] == n
    await edge.until(lambda: counted(edge) == 0)


@run_by_fixture("on_loop")
async def test_replies_that_wait_for_an_earlier_one_are_counted(edge):
    edge.dispatcher.holding = True
    client = await edge.client()
    client.send(b"".join(client.frame(n, body=bytes(100_000)) for n in range(3)))
    await edge.until(lambda: len(edge.dispatcher.held) == 3)
    edge.dispatcher.answer(2)
    await edge.until(lambda: counted(edge) == 100_000)
    edge.dispatcher.answer(1)
    await edge.until(lambda: counted(edge) == 200_000)
    edge.dispatcher.answer(0)
    for n in range(3):
        assert await client.reply() == (n, bytes(100_000))
    await edge.until(lambda: counted(edge) == 0)


@run_by_fixture("on_loop")
async def test_the_replies_of_a_connection_that_is_gone_are_not_counted(edge):
    edge.dispatcher.holding = True
    client = await edge.client()
    client.send(b"".join(client.frame(n, body=bytes(100_000)) for n in range(3)))
    await edge.until(lambda: len(edge.dispatcher.held) == 3)
    edge.dispatcher.answer(2)
    await edge.until(lambda: counted(edge) == 100_000)
    client.writer.transport.abort()
    await edge.until(lambda: edge.dispatcher.gone)
    assert counted(edge) == 0
    edge.dispatcher.answer(1)
    edge.dispatcher.answer(0)
    edge.dispatcher.holding = False
    await edge.round_trips(await edge.client())
    assert counted(edge) == 0


@run_by_fixture("on_loop")
async def test_a_handler_is_told_what_its_connection_holds_and_not_what_others_do(edge):
    edge.dispatcher.holding = True
    client, other = await edge.client(), await edge.client()
    client.send(b"".join(client.frame(n, body=bytes(100_000)) for n in range(2)))
    await edge.until(lambda: len(edge.dispatcher.held) == 2)
    edge.dispatcher.answer(1)
    await edge.until(lambda: counted(edge) == 100_000)
    edge.dispatcher.script = lambda request, peer: [b"%d" % peer.replies.used_bytes]
    assert (await other.ask(7))[1] == b"0"
    client.send(client.frame(2))
    await edge.until(lambda: counted(edge) > 100_000)
    edge.dispatcher.answer(0)
    assert [(await client.reply())[1] for _ in range(3)][2] == b"100000"


def test_a_peer_that_does_not_read_is_closed_while_memory_is_scarce_and_no_more_than_need_be(
    on_loop, caplog
):
    async def test(edge):
        edge.dispatcher.script = lambda request, peer: [bytes(request.correlation_id)]
        deaf = [await edge.client() for _ in range(2)]
        for client in deaf:
            client.send(client.frame(16 * MIB))
        good = await edge.client()
        await edge.until(lambda: len(edge.dispatcher.gone) == 1)
        assert 0 < counted(edge) <= 24 * MIB
        await good.ask(5)
        assert edge.server.connections == 2

    with caplog.at_level(logging.INFO, logger="holdfast.server"):
        on_loop(test, reply_bytes_max=48 * MIB, stalled_seconds_max=0.05)
    ended = [r for r in caplog.records if getattr(r, "event", "") == "connection_ended"]
    assert len(ended) == 1
    assert "did not read" in ended[0].fields["reason"]


@run_by_fixture("on_loop", reply_bytes_max=MIB, stalled_seconds_max=0.05)
async def test_a_connection_that_is_closing_gives_up_what_its_peer_does_not_read(edge):
    edge.dispatcher.script = lambda request, peer: [bytes(16 * MIB)]
    deaf = await edge.client()
    deaf.send(deaf.frame(1))
    await edge.until(lambda: counted(edge) > 16 * MIB)
    deaf.writer.write_eof()  # the server would close once all is sent
    await edge.until(lambda: edge.server.connections == 0)
    assert counted(edge) == 0


def test_drops_are_no_progress_and_a_slow_peer_that_goes_on_is_never_still():
    progress = Progress(0.0)
    for second in range(1, 20):
        assert progress.still_seconds(float(second), second * PROGRESS_BYTES) == 0
    done = 19 * PROGRESS_BYTES
    for second in range(20, 30):
        still = progress.still_seconds(float(second), done + second)
        assert still == second - 19
    assert progress.still_seconds(30.0, 0) == 0  # another task begins
