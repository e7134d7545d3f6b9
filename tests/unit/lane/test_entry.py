"""The format of a lane object: every harm is recognised, and the cursor keeps the lane's rules."""

import dataclasses

import pytest

from holdfast.errors import CorruptObject
from holdfast.identifiers import BrokerId, LaneId, LaneNumber, WriterId
from holdfast.lane.cursor import Cursor
from holdfast.lane.entry import (
    CHAIN_START,
    HEADER_BYTES,
    Claim,
    EntryHeader,
    EntryKind,
    check_payload,
    decode_claim,
    encode_claim,
    facts_of,
    parse_header,
    seal,
)
from holdfast.lane.keys import entry_key, number_in

A, B = WriterId(b"a" * 16), WriterId(b"b" * 16)
LANE = LaneId(3)
KEY = "lanes/0003/key"


def sealed(
    kind: EntryKind = EntryKind.DATA,
    number: int = 1,
    claim: int = 0,
    writer: WriterId = A,
    previous: bytes = CHAIN_START,
    lane: LaneId = LANE,
    facts: bytes = b"facts",
    payload: tuple[bytes, ...] = (b"pay", b"load"),
):
    return seal(
        kind=kind,
        lane=lane,
        number=LaneNumber(number),
        claim=LaneNumber(claim),
        writer=writer,
        previous=previous,
        facts=facts,
        payload=payload,
        written_ms=123,
    )


def opened(data: bytes) -> tuple[EntryHeader, bytes, bytes]:
    header = parse_header(data, key=KEY)
    facts = facts_of(header, data, key=KEY)
    payload = data[header.payload_start :]
    check_payload(header, payload, key=KEY)
    return header, facts, payload


def test_what_was_sealed_is_read_back():
    entry = sealed()
    assert opened(b"".join(entry.body)) == (entry.header, b"facts", b"payload")


def test_an_object_without_facts_or_payload_is_read_back():
    entry = sealed(kind=EntryKind.RELEASE, facts=b"", payload=())
    assert opened(b"".join(entry.body)) == (entry.header, b"", b"")


def test_each_flipped_bit_of_each_byte_is_detected():
    data = b"".join(sealed().body)
    for position in range(len(data)):
        for bit in range(8):
            harmed = bytearray(data)
            harmed[position] ^= 1 << bit
            with pytest.raises(CorruptObject, match=KEY):
                opened(bytes(harmed))


def test_a_truncation_at_each_byte_is_detected():
    data = b"".join(sealed().body)
    for length in range(len(data)):
        with pytest.raises(CorruptObject, match=KEY):
            opened(data[:length])
    with pytest.raises(CorruptObject):
        opened(data + b"x")


def test_a_claim_is_read_back_with_all_that_it_says():
    claim = Claim(
        broker_id=BrokerId(5),
        address="h:1",
        claimed_ms=7,
        machine="m",
        process=8,
        process_start=9,
        valid_ms=10,
        owed_ms=11,
    )
    assert decode_claim(encode_claim(claim)) == claim


def claimed(writer: WriterId = A, at: Cursor | None = None) -> tuple[Cursor, EntryHeader]:
    cursor = at or Cursor.at_start_of(LANE)
    header = sealed(
        EntryKind.CLAIM,
        cursor.next_number,
        cursor.next_number,
        writer,
        cursor.hash,
        payload=(),
    ).header
    return cursor.advance(header), header


def test_a_claim_changes_the_writer_and_raises_the_leader_epoch():
    first, _ = claimed(A)
    assert (first.next_number, first.claim, first.writer, first.leader_epoch) == (1, 0, A, 0)
    second, _ = claimed(B, first)
    assert (second.next_number, second.claim, second.writer, second.leader_epoch) == (2, 1, B, 1)


def test_data_of_the_owner_advances_and_a_release_is_remembered_until_the_next_claim():
    cursor, header = claimed(A)
    data = sealed(previous=header.hash).header
    after = cursor.advance(data)
    assert (after.next_number, after.hash, after.released) == (2, data.hash, False)
    released = after.advance(sealed(EntryKind.RELEASE, 2, 0, previous=data.hash).header)
    assert released.released
    again, _ = claimed(B, released)
    assert not again.released


def test_objects_that_do_not_continue_the_lane_are_refused():
    cursor, header = claimed(A)
    good = {"previous": header.hash}
    wrong = {
        "another lane": sealed(lane=LaneId(4), **good),
        "another number": sealed(number=2, **good),
        "another history": sealed(previous=b"x" * 16),
        "another writer": sealed(writer=B, **good),
        "another claim": sealed(claim=1, **good),
        "a claim that names another": sealed(EntryKind.CLAIM, 1, 0, B, **good),
        "a release by another": sealed(EntryKind.RELEASE, writer=B, **good),
    }
    assert cursor.advance(sealed(**good).header).next_number == 2
    for what, entry in wrong.items():
        with pytest.raises(CorruptObject, match=entry_key(LANE, 1)):
            raise AssertionError(f"{what} was taken: {cursor.advance(entry.header)}")


def test_only_a_claim_may_follow_a_release():
    cursor, header = claimed(A)
    released = dataclasses.replace(cursor, released=True)
    with pytest.raises(CorruptObject, match="released"):
        released.advance(sealed(previous=header.hash).header)


def test_the_hash_chain_covers_facts_and_payload():
    one = sealed(facts=b"one").header
    assert len({one.hash, sealed(facts=b"two").header.hash, sealed(payload=()).header.hash}) == 3
    assert one.payload_start == HEADER_BYTES + 3


def test_strangers_beside_our_objects_have_no_number():
    assert number_in(entry_key(LANE, 12)) == 12
    for name in ("README", "12", "0" * 21, "\u0660" * 20, "-" + "0" * 19, ""):
        assert number_in(f"lanes/0003/{name}") is None
