"""Bytes that were a message once, or never: refused in one way, at a bounded cost."""

import random
import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.protocol.fields import Field, Primitive
from holdfast.protocol.messages.fetch import FetchResponse
from holdfast.protocol.messages.metadata import MetadataRequest
from holdfast.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from holdfast.protocol.primitives import (
    ELEMENTS_MAX,
    MalformedMessage,
    UnencodableMessage,
    write_varint,
)
from holdfast.protocol.schemas import SCHEMAS

MESSAGES = [message for pair in SCHEMAS.values() for message in pair]
MUTANTS = 20_000


def example(message, version, chance):
    def value(row: Field):
        if row.kind == "array":
            return [element(row.element) for _ in range(chance.randrange(1, 3))]
        if row.kind == "struct":
            return example(row.element, version, chance)
        if row.kind in ("records", "record_buffers"):
            raw = memoryview(chance.randbytes(30))
            return raw if row.kind == "records" else (raw,)
        return {"string": "name", "bytes": b"bytes", "bool": True}.get(row.kind, row.default)

    def element(kind):
        if not isinstance(kind, Primitive):
            return example(kind, version, chance)
        return "text" if kind.kind == "string" else FIXED.get(kind.kind, 3)

    present = {n: value(row) for n, row in message.FIELDS.items() if row.is_in(version)}
    return message(**present)


FIXED = {"uuid": MetadataRequest.FIELDS["topics"].element.FIELDS["topic_id"].default}


def mutated(raw: bytes, chance) -> bytes:
    data = bytearray(raw)
    for _ in range(chance.choice((1, 1, 2, 5))):
        place = chance.randrange(len(data)) if data else 0
        match chance.randrange(5):
            case 0:
                del data[place:]
            case 1:
                data[place : place + 1] = bytes([chance.choice((0, 1, 0x7F, 0x80, 0xFF))])
            case 2:
                data[place:place] = chance.randbytes(chance.randrange(1, 6))
            case 3:
                data[place : place + 4] = struct.pack(
                    ">i", chance.choice((-1, -2, 2**31 - 1, 2**24, -(2**31)))
                )
            case _:
                del data[place : place + chance.randrange(1, 9)]
    return bytes(data)


def test_a_mutated_message_is_decoded_or_refused_and_nothing_else():
    chance = random.Random(31)
    refused = 0
    for _ in range(MUTANTS):
        message = chance.choice(MESSAGES)
        version = chance.choice(message.VERSIONS)
        raw = mutated(b"".join(example(message, version, chance).encode(version)), chance)
        try:
            decoded = message.decode(raw, version)
        except MalformedMessage as problem:
            assert f"{message.__name__} v{version}" in str(problem)
            refused += 1
        else:
            again = b"".join(decoded.encode(version))
            assert message.decode(again, version, exact=True) == decoded
    assert MUTANTS // 4 < refused < MUTANTS


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(MESSAGES), st.data(), st.binary(max_size=300))
def test_random_bytes_are_decoded_or_refused(message, data, raw):
    version = data.draw(st.sampled_from(message.VERSIONS))
    try:
        decoded = message.decode(raw, version)
    except MalformedMessage as problem:
        assert message.__name__ in str(problem)
    else:
        assert message.decode(b"".join(decoded.encode(version)), version) == decoded


def test_every_truncation_of_a_message_is_refused():
    chance = random.Random(5)
    for message in MESSAGES:
        for version in message.VERSIONS:
            raw = b"".join(example(message, version, chance).encode(version))
            for cut in range(0, len(raw), max(1, len(raw) // 25)):
                with pytest.raises(MalformedMessage):
                    message.decode(raw[:cut], version)


@pytest.mark.parametrize("message", MESSAGES)
def test_bytes_after_the_message_are_passed_over_or_refused_as_asked(message):
    version = message.VERSIONS[-1]
    raw = b"".join(message().encode(version))
    assert message.decode(raw + b"\x01", version) == message()
    with pytest.raises(MalformedMessage, match="left over"):
        message.decode(raw + b"\x01", version, exact=True)


@pytest.mark.parametrize("count", [2**31 - 1, 2**24, 100])
def test_a_count_that_the_bytes_cannot_hold_allocates_nothing(count):
    raw = struct.pack(">hhii", -1, -1, 1000, count)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage, match="topic_data"):
            ProduceRequest.decode(raw, 3)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_nested_arrays_cannot_add_up_to_more_than_the_bound():
    topics = ELEMENTS_MAX + 1
    raw = bytearray(struct.pack(">Bhi", 0, -1, 1000))
    write_varint(raw, topics + 1)
    raw += b"\x01\x01\x00" * topics + b"\0"
    with pytest.raises(MalformedMessage, match="array elements"):
        ProduceRequest.decode(raw, 9)


def test_unknown_tagged_fields_are_skipped_and_dropped():
    request = ProduceRequest(
        acks=1, topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData()])]
    )
    raw = b"".join(request.encode(9))
    assert raw.endswith(b"\0\0\0")
    tagged = raw[:-1] + b"\x02\x07\x03abc\xff\x01\x00"
    assert ProduceRequest.decode(tagged, 9) == request
    for bad in (b"\x01\x07\x7fabc", b"\x02\x07\x00", b"\xff\xff\xff\xff\xff\x01"):
        with pytest.raises(MalformedMessage):
            ProduceRequest.decode(raw[:-1] + bad, 9)


def test_a_known_tag_that_lies_about_its_size_is_refused():
    raw = b"".join(FetchResponse().encode(16))
    assert raw[-1:] == b"\0"
    with pytest.raises(MalformedMessage, match="node_endpoints"):
        FetchResponse.decode(raw[:-1] + b"\x01\x00\x05\x01\0\0\0\0", 16)


def test_records_are_slices_of_the_frame_and_writable():
    batch = bytes(range(200))
    request = ProduceRequest(
        topic_data=[
            TopicProduceData(
                name="t", partition_data=[PartitionProduceData(records=memoryview(batch))]
            )
        ]
    )
    for version in ProduceRequest.VERSIONS:
        parts = request.encode(version)
        assert any(part is request.topic_data[0].partition_data[0].records for part in parts)
        frame = bytearray(b"".join(parts))
        records = ProduceRequest.decode(frame, version).topic_data[0].partition_data[0].records
        records[0] = 255
        assert frame.count(b"\xff" + batch[1:]) == 1


def test_a_value_that_its_field_cannot_carry_is_refused():
    for bad in (
        ProduceRequest(acks=70_000),
        ProduceRequest(transactional_id="x" * 40_000),
        ProduceRequest(topic_data=[TopicProduceData(name=None)]),
        ProduceRequest(timeout_ms="soon"),
    ):
        with pytest.raises(UnencodableMessage, match="ProduceRequest v3"):
            bad.encode(3)
    with pytest.raises(UnencodableMessage, match="versions 3 to 13"):
        ProduceRequest().encode(2)
