"""Records as lines: what is read and printed, and that JSON comes back as it went."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.records.record_lines import (
    Shown,
    json_line,
    parse_json,
    parse_text,
    separator_bytes,
    text_line,
)
from holdfast.errors import ConfigurationError
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.records.record import Record

WHERE = TopicPartition("orders", 2)
some_bytes = st.none() | st.binary(max_size=20) | st.text(max_size=10).map(str.encode)


@given(
    key=some_bytes,
    value=some_bytes,
    headers=st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=3),
    timestamp=st.integers(0, 2**50),
)
def test_what_consume_prints_as_json_produce_reads_as_the_same_record(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    timestamp: int,
):
    line = json_line(WHERE, Record(7, timestamp, key, value, tuple(headers)))
    assert line.count(b"\n") == 1
    draft = parse_json(line)
    assert (draft.key, draft.value, draft.headers) == (key, value, tuple(headers))
    assert (draft.timestamp, draft.partition) == (timestamp, 2)


def test_a_value_that_is_no_text_is_written_as_json():
    assert parse_json(b'{"value": {"id": 1, "tags": [true]}}').value == b'{"id":1,"tags":[true]}'
    assert parse_json(b'{"value": 5}').value == b"5"
    assert parse_json(b'{"value": null}').value is None
    assert parse_json(b'{"value": "", "headers": {"a": "b"}}').headers == (("a", b"b"),)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "it is not JSON"),
        (b'{"value": "\xff"}', "it is not JSON"),
        (b"[1]", "no JSON object"),
        (b'{"key": "k"}', 'no "value"'),
        (b'{"valeu": 1, "value": 2}', "unknown member 'valeu'"),
        (b'{"value_base64": "%"}', "value_base64 is not base64"),
        (b'{"value": 1, "headers": [1]}', "headers must be"),
        (b'{"value": 1, "headers": 5}', "headers must be"),
        (b'{"value": 1, "partition": -1}', "partition must be"),
        (b'{"value": 1, "timestamp": "now"}', "timestamp must be"),
    ],
)
def test_a_line_that_is_no_record_says_what_to_write(line: bytes, said: str):
    with pytest.raises(ConfigurationError, match=said):
        parse_json(line)


def test_a_key_ends_at_the_first_separator():
    assert parse_text(b"k:v:w", b":")[:2] == (b"k", b"v:w")
    assert parse_text(b"k:v", None)[:2] == (None, b"k:v")
    with pytest.raises(ConfigurationError, match="no separator"):
        parse_text(b"kv", b":")


def test_text_has_the_parts_of_kafkas_console_consumer_in_its_order():
    record = Record(9, 1_700, b"k", None, (("a", b"1"), ("b", None)))
    everything = Shown(key=True, partition=True, offset=True, timestamp=True, headers=True)
    line = text_line(WHERE, record, everything)
    assert line == b"CreateTime:1700\tPartition:2\tOffset:9\ta:1,b:null\tk\tnull\n"
    assert text_line(WHERE, record._replace(value=b"v"), Shown()) == b"v\n"
    bare = text_line(WHERE, Record(0, 0, None, b"v"), Shown(headers=True, separator=b"|"))
    assert bare == b"NO_HEADERS|v\n"


def test_a_separator_can_be_written_in_a_shell():
    assert separator_bytes("\\t") == b"\t"
    assert separator_bytes("::") == b"::"


def test_a_line_of_json_has_the_members_of_the_sinks_envelope():
    line = json.loads(json_line(WHERE, Record(9, 5, None, b"\xff", (("h", b"x"),))))
    assert line == {
        "key": None,
        "value_base64": "/w==",
        "topic": "orders",
        "partition": 2,
        "offset": 9,
        "timestamp": 5,
        "headers": [{"key": "h", "value": "x"}],
    }
