"""Hostile load on a real broker: a well-behaved client is served, and memory stays bounded.

The short form of `make chaos-hostile`. How long the client waits is printed there and not asserted
here: a busy machine is no defect of the broker.
"""

import random
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.hostile.cases.bombs import NAMES as CODECS
from tests.hostile.cases.bombs import zeros
from tests.hostile.cases.produce import VERSION, produce
from tests.hostile.load.attacks import (
    ATTACKS,
    FETCH,
    LARGE_FRAME_BYTES,
    SLOW_EXPRESSION,
    SLOW_READERS,
    UNFINISHED_BYTES,
    WIDE_BATCHES,
    Attack,
    fetch_wide,
    fill_wide,
    join_consumer,
    many_groups,
    open_slow_reader,
)
from tests.hostile.load.neighbour import Timings
from tests.hostile.load.run import (
    MIB,
    Outcome,
    attack,
    broker_under_attack,
    many_groups_allowance,
)
from tests.peers.holdfast import HoldfastBroker
from tests.support.hostile_bytes import Peer, batch, request

from holdfast.broker.handlers.data.produce import OPENED_BYTES_MAX
from holdfast.client.wire import decode_response
from holdfast.errors import CorruptObject
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.api_versions import ApiVersionsRequest
from holdfast.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from holdfast.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from holdfast.protocol.messages.fetch import FetchResponse
from holdfast.protocol.messages.init_producer_id import InitProducerIdRequest
from holdfast.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from holdfast.records.batch import walk
from holdfast.records.compression import Codec, decompress
from holdfast.server.events import LINES_MAX

SECONDS = 2.0
FEW_GROUPS = 2_000
FEW_GROUPS_NAME = f"{FEW_GROUPS:,} groups"
SHORT: dict[str, Attack] = {**ATTACKS, FEW_GROUPS_NAME: many_groups(FEW_GROUPS)}
VIOLATIONS = 200
QUIET_ROUNDS = 2
"""Rounds in which no connection takes a byte within 50 ms: the broker reads no more."""
BAD_EXPRESSIONS = (
    "(" * 5_000 + ")" * 5_000,
    "a{99999999999}",
    "a{1001}",
    "(a",
    "(?=a)",
    r"\C",
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HoldfastBroker]:
    started = broker_under_attack(tmp_path_factory.mktemp("load"))
    try:
        yield started
    finally:
        started.stop()


@pytest.mark.parametrize("name", SHORT)
def test_a_well_behaved_client_is_served_beside(name: str, broker: HoldfastBroker):
    allowance = many_groups_allowance(FEW_GROUPS) if name == FEW_GROUPS_NAME else None
    outcome = attack(broker, SHORT[name], SECONDS, allowance)
    assert outcome.problems() == []
    assert "Traceback" not in broker.process.log_text()


def test_an_attack_that_fails_is_no_attack_that_was_survived(broker: HoldfastBroker):
    def broken(port: int, seconds: float) -> int:
        raise RuntimeError(f"nothing was sent to {port} for {seconds} s")

    with pytest.raises(RuntimeError, match="nothing was sent"):
        attack(broker, broken, SECONDS)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"sent": 0}, "sent nothing"),
        ({"memory_highest": 31 * MIB}, "grew by 21 MiB; 20 MiB are allowed"),
        ({"timings": Timings([], [])}, "no round trip"),
        ({"timings": Timings([1.0], ["offset 3"])}, "offset 3"),
    ],
)
def test_a_run_is_judged_by_what_was_sent_what_was_seen_and_memory(
    changes: dict[str, Any], word: str
):
    sound = Outcome(5, Timings([250.0], []), 10 * MIB, 30 * MIB, 20 * MIB)
    assert sound.problems() == sound.slowness() == []
    (problem,) = sound._replace(**changes).problems()
    assert word in problem
    (slow,) = sound._replace(timings=Timings([251.0], [])).slowness()
    assert "p99" in slow


def test_a_consumer_of_old_records_goes_on_beside_slow_readers(broker: HoldfastBroker):
    fill_wide(broker.port)
    slow = [open_slow_reader(broker.port, number) for number in range(SLOW_READERS)]
    try:
        with Peer(broker.port) as peer:
            offset = 0
            while offset < WIDE_BATCHES:
                peer.send(fetch_wide(offset, 4 * MIB))
                reply = peer.reply()
                assert reply is not None
                (part,) = decode_response(reply, FetchResponse, FETCH).responses[0].partitions
                found = [header.base_offset for _, header in walk(b"".join(part.records or []))]
                assert found, f"no record batch at offset {offset}"
                assert found == list(range(offset, offset + len(found)))
                offset += len(found)
    finally:
        for one in slow:
            one.close()


@pytest.mark.parametrize("codec", CODECS)
def test_each_bomb_fits_into_a_request_and_is_more_than_the_broker_opens(codec: int):
    body = zeros(codec)
    assert len(body) < 1_000_000
    with pytest.raises(CorruptObject, match=str(OPENED_BYTES_MAX)):
        decompress(Codec(codec), body, uncompressed_bytes_max=OPENED_BYTES_MAX)
    assert len(decompress(Codec(codec), body, uncompressed_bytes_max=256 * MIB)) > OPENED_BYTES_MAX


def test_violations_leave_few_lines_in_the_log_and_all_are_counted(tmp_path: Path):
    """B17: a flood of nonsense wrote a line for each connection."""
    broker = HoldfastBroker(tmp_path).start()  # its own: other tests leave violations to be told
    try:
        for _ in range(VIOLATIONS):
            with Peer(broker.port) as peer:
                peer.send(b"\xff" * 64)
                assert peer.reply() is None
        broker.process.wait_until(
            lambda: sum(_violations_told(broker)) == VIOLATIONS,
            seconds_max=60.0,
            what="all violations are told",
        )
        lines, left_out = _violations_told(broker)
        assert lines <= 3 * LINES_MAX  # of at most three windows of 10 s
        assert left_out > 0
    finally:
        broker.stop()


def _violations_told(broker: HoldfastBroker) -> tuple[int, int]:
    """Lines of protocol violations in the log, and how many more it says there were."""
    text = broker.process.log_text()
    left_out = re.findall(r"events_left_out name_of_event='protocol_violation' count=(\d+)", text)
    return text.count(" protocol_violation peer="), sum(map(int, left_out))


def test_a_pattern_that_backtracks_freezes_nobody(tmp_path: Path):
    """B2: these two frames held the only thread of the broker for good."""
    broker = HoldfastBroker(tmp_path).start()
    try:
        with Peer(broker.port) as peer, Peer(broker.port) as other:
            made = InitProducerIdRequest(transactional_id="a" * 40, transaction_timeout_ms=60_000)
            peer.send(request(made, 4))
            assert peer.reply() is not None
            assert _listed(peer, "(a+)+b").transaction_states == []
            assert [t.transactional_id for t in _listed(peer, "(a+)+").transaction_states] == [
                "a" * 40
            ]
            other.send(request(ApiVersionsRequest(), 0))
            assert other.reply() is not None
            for bad in BAD_EXPRESSIONS:
                found = _listed(peer, bad)
                assert found.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    finally:
        broker.stop()
    assert broker.process.exit_code() == 0


def _listed(peer: Peer, pattern: str) -> ListTransactionsResponse:
    peer.send(request(ListTransactionsRequest(transactional_id_pattern=pattern), 2))
    reply = peer.reply()
    assert reply is not None, f"closed instead of an answer to {pattern[:20]!r}"
    return decode_response(reply, ListTransactionsResponse, 2)


def test_others_are_answered_before_a_slow_expression_is(tmp_path: Path):
    """B3: one expression over 1,000 topics of 240 letters kept everybody waiting for 15 s."""
    broker = HoldfastBroker(tmp_path).start()
    try:
        with Peer(broker.port, seconds_max=120.0) as peer, Peer(broker.port) as other:
            topics = [
                CreatableTopic(name=name, num_partitions=1, replication_factor=1)
                for name in _long_names(1_000)
            ]
            peer.send(request(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7))
            assert peer.reply() is not None
            peer.send(join_consumer("slow", 1, SLOW_EXPRESSION))
            # Between two slices others have their turn: many answers come before the slow one.
            for _ in range(20):
                other.send(request(ApiVersionsRequest(), 0))
                assert other.reply() is not None
            assert not peer.has_answer()
            reply = peer.reply()
            assert reply is not None
            told = decode_response(reply, ConsumerGroupHeartbeatResponse, 1)
            assert told.error_code == ErrorCode.NONE
            for bad in BAD_EXPRESSIONS:
                peer.send(join_consumer("bad", 1, bad))
                reply = peer.reply()
                assert reply is not None
                told = decode_response(reply, ConsumerGroupHeartbeatResponse, 1)
                assert told.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
                assert "SubscribedTopicRegex" in (told.error_message or "")
    finally:
        broker.stop()


def _long_names(count: int) -> list[str]:
    """Names that look random: an automaton of the expression never sees the same state twice."""
    chance = random.Random(3)
    return ["".join(chance.choices("ab", k=240)) for _ in range(count)]


def test_unfinished_large_frames_take_no_place_from_small_requests(tmp_path: Path):
    """B5: nine frames of 99 MB that never end kept a produce waiting until one was given up."""
    broker = broker_under_attack(tmp_path)
    held = [Peer(broker.port) for _ in range(9)]
    try:
        for peer in held:
            peer.send(struct.pack(">i", LARGE_FRAME_BYTES))
        _fill(held)
        with Peer(broker.port) as other:
            other.send(request(produce(batch(b"x" * 500_000), topic="target"), VERSION))
            assert other.reply() is not None
        # Nothing was given up for it: no reply and no end has arrived on the nine.
        assert not any(peer.has_answer() for peer in held)
    finally:
        for peer in held:
            peer.reset()
        broker.stop()


def _fill(held: list[Peer]) -> None:
    """Send until each frame is almost whole, or the broker reads no more of it."""
    left = dict.fromkeys(held, UNFINISHED_BYTES)
    quiet = 0
    while left and quiet < QUIET_ROUNDS:
        sent = 0
        for peer in list(left):
            count = peer.send_what_fits(bytes(min(1 << 20, left[peer])))
            sent += count
            left[peer] -= count
            if not left[peer]:
                del left[peer]
        quiet = 0 if sent else quiet + 1
