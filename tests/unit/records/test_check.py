"""What a Produce request may hold for one partition, and what it is told otherwise."""

import struct

import pytest
from fastcrc.crc32 import iscsi
from kio.schema.errors import ErrorCode

from holdfast.records.batch import HEADER_BYTES, BatchHeader
from holdfast.records.check import BatchRefusal, RefusalKind, check_produced
from holdfast.records.compression import Codec
from holdfast.records.record import Record, encode_batch

LIMIT = 1_048_588
NOT_COVERED_BY_THE_CRC = range(12, 16)
"""leader_epoch: the leader overwrites it, so what a producer sends there is never used."""

ATTRIBUTES, LAST_DELTA, PRODUCER_ID, PRODUCER_EPOCH, SEQUENCE, COUNT = 21, 23, 43, 51, 53, 57


def small_batch(**options: object) -> bytes:
    records = [Record(0, 1_000, b"k", b"v"), Record(0, 1_001, None, b"w", (("h", b"x"),))]
    return encode_batch(records, **options)  # pyright: ignore[reportArgumentType]


def changed(batch: bytes, *fields: tuple[int, str, int]) -> bytes:
    """The batch with some fields set anew, and a CRC that vouches for them."""
    out = bytearray(batch)
    for position, layout, value in fields:
        struct.pack_into(layout, out, position, value)
    struct.pack_into(">I", out, 17, iscsi(bytes(out[21:])))
    return bytes(out)


def refused(records: bytes | None, *, limit: int = LIMIT) -> RefusalKind:
    answer = check_produced(None if records is None else memoryview(records), max_batch_bytes=limit)
    assert isinstance(answer, BatchRefusal)
    assert answer.message
    return answer.error


@pytest.mark.parametrize("codec", list(Codec))
def test_a_sound_batch_is_taken(codec: Codec):
    batch = small_batch(codec=codec, producer_id=4, producer_epoch=0, base_sequence=0)
    answer = check_produced(memoryview(batch), max_batch_bytes=LIMIT)
    assert isinstance(answer, list)
    assert [type(header) for header in answer] == [BatchHeader]
    assert answer[0].size_bytes == len(batch)
    assert answer[0].record_count == 2


def test_every_single_bit_that_flips_is_refused_but_in_the_leader_epoch():
    batch = small_batch()
    taken: set[int] = set()
    for position in range(len(batch)):
        for bit in range(8):
            flipped = bytearray(batch)
            flipped[position] ^= 1 << bit
            answer = check_produced(memoryview(flipped), max_batch_bytes=LIMIT)
            if not isinstance(answer, BatchRefusal):
                taken.add(position)
    assert taken == set(NOT_COVERED_BY_THE_CRC)


def test_a_batch_cut_at_any_byte_is_refused():
    batch = small_batch()
    for length in range(len(batch)):
        assert refused(batch[:length]) is RefusalKind.INVALID_RECORD


def test_null_and_empty_records_are_refused():
    assert refused(None) is RefusalKind.INVALID_RECORD
    assert refused(b"") is RefusalKind.INVALID_RECORD


@pytest.mark.parametrize("extra", [b"\x00", bytes(61), small_batch()])
def test_anything_after_the_one_batch_is_refused(extra: bytes):
    assert refused(small_batch() + extra) is RefusalKind.INVALID_RECORD


@pytest.mark.parametrize(
    ("magic", "kind"),
    [
        (0, RefusalKind.INVALID_RECORD),
        (1, RefusalKind.INVALID_RECORD),
        (3, RefusalKind.CORRUPT_MESSAGE),
        (255, RefusalKind.CORRUPT_MESSAGE),
    ],
)
def test_only_magic_2_is_taken(magic: int, kind: RefusalKind):
    batch = bytearray(small_batch())
    batch[16] = magic
    assert refused(bytes(batch)) is kind


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 13, 48])
def test_a_length_below_the_header_is_corrupt(length: int):
    batch = bytearray(small_batch())
    struct.pack_into(">i", batch, 8, length)
    assert refused(bytes(batch)) is RefusalKind.CORRUPT_MESSAGE


def test_a_wrong_crc_is_corrupt_and_says_both():
    batch = bytearray(small_batch())
    batch[-1] ^= 1
    answer = check_produced(memoryview(batch), max_batch_bytes=LIMIT)
    assert isinstance(answer, BatchRefusal)
    assert answer.error is RefusalKind.CORRUPT_MESSAGE
    assert answer.message.count("0x") == 2


def test_a_batch_of_exactly_the_limit_is_taken_and_one_byte_more_is_not():
    batch = small_batch()
    assert isinstance(check_produced(memoryview(batch), max_batch_bytes=len(batch)), list)
    assert refused(batch, limit=len(batch) - 1) is RefusalKind.MESSAGE_TOO_LARGE


def test_a_base_offset_other_than_0_is_refused():
    assert refused(small_batch(base_offset=1)) is RefusalKind.INVALID_RECORD
    assert refused(small_batch(base_offset=-1)) is RefusalKind.INVALID_RECORD


def test_a_control_batch_is_refused():
    assert refused(small_batch(control=True)) is RefusalKind.INVALID_RECORD


def test_a_batch_that_claims_log_append_time_is_refused():
    assert refused(small_batch(log_append_time_ms=5)) is RefusalKind.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec_id", [5, 6, 7])
def test_an_unknown_codec_is_refused(codec_id: int):
    batch = changed(small_batch(), (ATTRIBUTES, ">h", codec_id))
    assert refused(batch) is RefusalKind.UNSUPPORTED_COMPRESSION_TYPE


def test_zstd_is_refused_where_the_request_is_too_old_for_it():
    batch = small_batch(codec=Codec.ZSTD)
    answer = check_produced(memoryview(batch), max_batch_bytes=LIMIT, zstd_allowed=False)
    assert isinstance(answer, BatchRefusal)
    assert answer.error is RefusalKind.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize(
    ("count", "last_delta"),
    [(0, -1), (-1, -2), (2, 0), (1, 1), (3, 1), (2, -1), (2**31 - 1, 2**31 - 2)],
)
def test_a_record_count_that_does_not_fit_is_refused(count: int, last_delta: int):
    batch = changed(small_batch(), (COUNT, ">i", count), (LAST_DELTA, ">i", last_delta))
    assert refused(batch) is RefusalKind.INVALID_RECORD


@pytest.mark.parametrize("codec", list(Codec))
def test_a_record_count_that_no_codec_can_hold_is_refused(codec: Codec):
    count = 2**31 - 1
    batch = changed(small_batch(codec=codec), (COUNT, ">i", count), (LAST_DELTA, ">i", count - 1))
    assert refused(batch) is RefusalKind.INVALID_RECORD


@pytest.mark.parametrize("codec", list(Codec))
def test_the_most_compressible_records_are_not_taken_for_a_lie(codec: Codec):
    records = [Record(0, 1_000, None, bytes(1_000))] * 20_000
    batch = encode_batch(records, codec=codec)
    answer = check_produced(memoryview(batch), max_batch_bytes=2**31)
    assert isinstance(answer, list)


def test_a_header_without_records_is_refused():
    batch = changed(small_batch()[:HEADER_BYTES], (8, ">i", 49))
    assert refused(batch) is RefusalKind.INVALID_RECORD


@pytest.mark.parametrize(
    ("epoch", "sequence"), [(-1, 0), (0, -1), (-1, -1), (-(2**15), 0), (0, -(2**31))]
)
def test_a_producer_without_sequence_or_epoch_is_refused(epoch: int, sequence: int):
    batch = changed(
        small_batch(),
        (PRODUCER_ID, ">q", 9),
        (PRODUCER_EPOCH, ">h", epoch),
        (SEQUENCE, ">i", sequence),
    )
    assert refused(batch) is RefusalKind.INVALID_RECORD


def test_a_transactional_batch_without_a_producer_is_refused():
    assert refused(small_batch(transactional=True)) is RefusalKind.INVALID_RECORD


def test_the_kinds_are_kafkas_names_and_codes():
    for kind in RefusalKind:
        assert ErrorCode(kind.value).name == kind.name.lower()
