"""The connection's core: admission, headers and the order of replies."""

import random

import pytest

from holdfast.errors import ConfigurationError
from holdfast.protocol.api import ApiKey
from holdfast.protocol.connection import (
    CLOSE,
    ConnectionState,
    ProtocolViolation,
    Request,
    ServedApis,
)
from holdfast.protocol.headers import (
    decode_client_id,
    decode_request_prefix,
    decode_response_header,
    encode_request_header,
)
from holdfast.protocol.primitives import MalformedMessage

SERVED = ServedApis({ApiKey.API_VERSIONS: range(5), ApiKey.PRODUCE: range(3, 14)})


def request(correlation_id: int, *, key=ApiKey.PRODUCE, version=3, client_id="c", flexible=False):
    return encode_request_header(key, version, correlation_id, client_id, flexible=flexible)


@pytest.mark.parametrize("seed", range(30))
def test_replies_leave_in_order_for_any_order_of_completion(seed):
    chance = random.Random(seed)
    connection = ConnectionState(SERVED)
    waiting, answered, sent = [], set(), b""
    for correlation_id in range(60):
        accepted = connection.accept(request(correlation_id))
        assert isinstance(accepted, Request)
        waiting.append(accepted)
        if chance.random() < 0.6:
            done = waiting.pop(chance.randrange(len(waiting)))
            connection.complete(done, [b"%04d" % done.correlation_id])
            answered.add(done.correlation_id)
            sent += b"".join(connection.take_outgoing())
    chance.shuffle(waiting)
    for done in waiting:
        connection.complete(done, [b"%04d" % done.correlation_id])
    sent += b"".join(connection.take_outgoing())
    replies = [sent[p : p + 12] for p in range(0, len(sent), 12)]
    assert [int(reply[8:]) for reply in replies] == list(range(60))
    assert [int.from_bytes(reply[4:8], "big") for reply in replies] == list(range(60))
    assert connection.unanswered == 0


def test_nothing_leaves_after_a_close():
    connection = ConnectionState(SERVED)
    first, second, third = (connection.accept(request(n)) for n in range(3))
    connection.complete(third, [b"late"])
    connection.complete(second, CLOSE)
    assert not connection.is_closing
    connection.complete(first, [b"early"])
    assert connection.is_closing
    assert b"".join(connection.take_outgoing())[8:] == b"early"


@pytest.mark.parametrize("client_id", [None, "", "ø", "x" * 32767])
@pytest.mark.parametrize("flexible", [False, True])
def test_a_request_header_survives_the_round_trip(client_id, flexible):
    raw = encode_request_header(3, 9, -5, client_id, flexible=flexible) + b"body"
    assert decode_request_prefix(raw) == (3, 9, -5)
    assert decode_client_id(memoryview(raw), flexible=flexible) == (client_id, len(raw) - 4)


def test_unknown_tagged_fields_in_a_header_are_skipped():
    raw = request(1, version=9)  # not flexible yet: the tagged fields follow
    connection = ConnectionState(SERVED)
    accepted = connection.accept(raw + b"\x02\x00\x03abc\x05\x00" + b"body")
    assert bytes(accepted.body) == b"body"


def test_a_response_header_is_tagged_except_for_api_versions():
    assert decode_response_header(memoryview(b"\0\0\0\x07\0body"), 3, flexible=True) == (7, 5)
    assert decode_response_header(memoryview(b"\0\0\0\x07body"), 18, flexible=True) == (7, 4)
    with pytest.raises(MalformedMessage):
        decode_response_header(memoryview(b"\0\0\0"), 3, flexible=False)


def test_what_is_not_served_is_a_violation_that_names_it():
    connection = ConnectionState(SERVED)
    assert "FETCH" not in connection.accept(request(1, key=ApiKey.FETCH)).reason
    assert "api key 1" in connection.accept(request(1, key=ApiKey.FETCH)).reason
    assert "PRODUCE version 14" in connection.accept(request(1, version=14)).reason
    assert isinstance(connection.accept(b"\0\0"), ProtocolViolation)
    assert connection.unanswered == 0


def test_serving_what_the_codec_does_not_know_is_refused_at_once():
    with pytest.raises(ConfigurationError, match="PRODUCE"):
        ServedApis({ApiKey.PRODUCE: range(3, 99)})
    with pytest.raises(ConfigurationError, match="VOTE"):
        ServedApis({ApiKey.VOTE: range(1)})
