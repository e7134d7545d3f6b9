"""Each codec both ways, framing, damage, and bombs that stay within their bound."""

import resource
import subprocess
import sys

import cramjam
import pytest

from holdfast.errors import CallError, CorruptObject
from holdfast.records.compression import (
    XERIAL_BLOCK_BYTES,
    XERIAL_HEADER,
    Codec,
    compress,
    decompress,
)

COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
SAMPLES = [b"", b"a", b"hello " * 1_000, bytes(range(256)) * 1_000]


@pytest.mark.parametrize("data", SAMPLES, ids=len)
@pytest.mark.parametrize("codec", list(Codec))
def test_what_is_compressed_comes_back(codec: Codec, data: bytes):
    packed = compress(codec, data)
    assert decompress(codec, memoryview(packed), uncompressed_bytes_max=len(data)) == data


@pytest.mark.parametrize("codec", list(Codec))
def test_one_byte_past_the_bound_is_refused(codec: Codec):
    packed = compress(codec, b"hello " * 1_000)
    with pytest.raises(CorruptObject, match="5999"):
        decompress(codec, packed, uncompressed_bytes_max=5_999)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_cut_at_any_byte_never_gives_the_whole(codec: Codec):
    data = b"hello world, " * 20
    packed = compress(codec, data)
    for length in range(len(packed)):
        try:
            found = decompress(codec, packed[:length], uncompressed_bytes_max=10_000)
        except CorruptObject:
            continue
        assert len(found) < len(data)


def test_snappy_is_written_in_the_frames_of_the_java_library():
    packed = compress(Codec.SNAPPY, bytes(XERIAL_BLOCK_BYTES + 1))
    assert packed.startswith(XERIAL_HEADER)
    first = int.from_bytes(packed[16:20], "big")
    assert cramjam.snappy.decompress_raw_len(packed[20 : 20 + first]) == XERIAL_BLOCK_BYTES


def test_plain_snappy_is_read():
    packed = bytes(cramjam.snappy.compress_raw(b"hello " * 100))
    found = decompress(Codec.SNAPPY, packed, uncompressed_bytes_max=600)
    assert found == b"hello " * 100
    with pytest.raises(CorruptObject, match="bound of 599"):
        decompress(Codec.SNAPPY, packed, uncompressed_bytes_max=599)


@pytest.mark.parametrize("length", [-1, 0, 1_000, 2**31 - 1])
def test_a_snappy_block_length_that_cannot_be_is_corrupt(length: int):
    packed = XERIAL_HEADER + length.to_bytes(4, "big", signed=True) + b"\x01\x00a"
    with pytest.raises(CorruptObject, match="block"):
        decompress(Codec.SNAPPY, packed, uncompressed_bytes_max=100)


def test_the_bound_holds_over_all_snappy_blocks_together():
    packed = compress(Codec.SNAPPY, bytes(4 * XERIAL_BLOCK_BYTES))
    with pytest.raises(CorruptObject, match="bound"):
        decompress(Codec.SNAPPY, packed, uncompressed_bytes_max=4 * XERIAL_BLOCK_BYTES - 1)


def test_lz4_blocks_are_independent_since_java_clients_refuse_linked_ones():
    block_independence = 0x20
    assert compress(Codec.LZ4, b"hello")[4] & block_independence


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_frame_that_is_not_one_is_corrupt(codec: Codec):
    with pytest.raises(CorruptObject):
        decompress(codec, b"\xff" * 64, uncompressed_bytes_max=10_000)


def test_a_negative_bound_is_a_wrong_call():
    with pytest.raises(CallError, match="-1"):
        decompress(Codec.GZIP, b"", uncompressed_bytes_max=-1)


BOMB_BYTES = 256 * 1024 * 1024
BOMB_BOUND = 1024 * 1024
GROWTH_KIB_MAX = 24 * 1024

DETONATE = f"""
import resource, sys
from holdfast.errors import CorruptObject
from holdfast.records.compression import Codec, decompress
packed = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(Codec[sys.argv[1]], packed, uncompressed_bytes_max={BOMB_BOUND})
except CorruptObject as error:
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    sys.stdout.write(str(grown) + " " + str(error))
"""


@pytest.mark.skipif(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss == 0, reason="no rusage")
@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_is_refused_within_the_memory_bound(codec: Codec):
    result = subprocess.run(
        [sys.executable, "-c", DETONATE, codec.name],
        input=bomb(codec),
        capture_output=True,
        check=True,
        timeout=60,
    )
    grown_kib, _, message = result.stdout.decode().partition(" ")
    assert str(BOMB_BOUND) in message
    assert int(grown_kib) < GROWTH_KIB_MAX


def bomb(codec: Codec) -> bytes:
    """Zeros of BOMB_BYTES, made from a repeated small frame where the format lets frames follow."""
    piece = 8 * 1024 * 1024
    match codec:
        case Codec.GZIP | Codec.LZ4 | Codec.ZSTD:
            return compress(codec, bytes(piece)) * (BOMB_BYTES // piece)
        case _:
            block = bytes(cramjam.snappy.compress_raw(bytes(piece)))
            framed = len(block).to_bytes(4, "big") + block
            return XERIAL_HEADER + framed * (BOMB_BYTES // piece)


def test_a_snappy_block_that_claims_4_gib_allocates_nothing():
    with pytest.raises(CorruptObject, match="4294967295"):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f", uncompressed_bytes_max=1_000_000)


def test_a_zstd_frame_that_claims_a_huge_content_is_not_believed():
    frame = bytearray(b"\x28\xb5\x2f\xfd\xe0") + (2**62).to_bytes(8, "little") + b"\x01\x00\x00"
    with pytest.raises(CorruptObject):
        decompress(Codec.ZSTD, bytes(frame), uncompressed_bytes_max=1_000_000)
