"""SipHash-2-4 with 128 bits of output, compiled, over columns of bytes.

Pure. Owns the hash, written from the paper of Aumasson and Bernstein. It is a keyed pseudo-random
function, so nobody can make two values collide without the key. Must never read past the buffer:
the kernels check each start and length, and return False if one does not fit.
"""

import numpy as np
from numpy.typing import NDArray

from holdfast.columnar.compiled import Address, address_of, byte_at, i64, kernel, u64, word_at

INITIAL_0 = u64(0x736F6D6570736575)
INITIAL_1 = u64(0x646F72616E646F6D)
INITIAL_2 = u64(0x6C7967656E657261)
INITIAL_3 = u64(0x7465646279746573)
WIDE_START = u64(0xEE)
WIDE_SECOND = u64(0xDD)
NULL_KEY = u64(0x6E756C6C6E756C6C)
"""Nulls are hashed as an empty message under another key, so they differ from every value."""


@kernel
def rotated(word: np.uint64, bits: int) -> np.uint64:
    return (word << u64(bits)) | (word >> u64(64 - bits))


@kernel
def mixed(
    v0: np.uint64, v1: np.uint64, v2: np.uint64, v3: np.uint64, rounds: int
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    for _ in range(rounds):
        v0 += v1
        v2 += v3
        v1 = rotated(v1, 13) ^ v0
        v3 = rotated(v3, 16) ^ v2
        v0 = rotated(v0, 32)
        v2 += v1
        v0 += v3
        v1 = rotated(v1, 17) ^ v2
        v3 = rotated(v3, 21) ^ v0
        v2 = rotated(v2, 32)
    return v0, v1, v2, v3


@kernel
def last_word(data: Address, end: int, left: int, length: int) -> np.uint64:
    """Return the last 0 to 7 bytes, with the length in the highest byte."""
    word = u64(length) << u64(56)
    if left == 0:
        return word
    if end >= 8:
        return word | (word_at(data, end - 8) >> u64(64 - 8 * left))
    for i in range(left):
        word |= u64(byte_at(data, end - left + i)) << u64(8 * i)
    return word


@kernel
def siphash(
    data: Address, start: int, length: int, k0: np.uint64, k1: np.uint64
) -> tuple[np.uint64, np.uint64]:
    """Return the two words of the hash of a range.

    The caller has checked that it is in the data.
    """
    v0 = k0 ^ INITIAL_0
    v1 = k1 ^ INITIAL_1 ^ WIDE_START
    v2 = k0 ^ INITIAL_2
    v3 = k1 ^ INITIAL_3
    left = length & 7
    end = start + length
    for position in range(start, end - left, 8):
        word = word_at(data, position)
        v3 ^= word
        v0, v1, v2, v3 = mixed(v0, v1, v2, v3, 2)
        v0 ^= word
    word = last_word(data, end, left, length)
    v3 ^= word
    v0, v1, v2, v3 = mixed(v0, v1, v2, v3, 2)
    v0 ^= word
    v2 ^= WIDE_START
    v0, v1, v2, v3 = mixed(v0, v1, v2, v3, 4)
    low = v0 ^ v1 ^ v2 ^ v3
    v1 ^= WIDE_SECOND
    v0, v1, v2, v3 = mixed(v0, v1, v2, v3, 4)
    return low, v0 ^ v1 ^ v2 ^ v3


@kernel
def hash_variable(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int32] | NDArray[np.int64],
    key: tuple[np.uint64, np.uint64],
    low: NDArray[np.uint64],
    high: NDArray[np.uint64],
) -> bool:
    """Hash data[offsets[i]:offsets[i + 1]] for each row i. False if that is not in the data."""
    for row in range(len(low)):
        start = i64(offsets[u64(row)])
        end = i64(offsets[u64(row + 1)])
        if start < 0 or end < start or end > len(data):
            return False
        low[u64(row)], high[u64(row)] = siphash(
            address_of(data), start, end - start, key[0], key[1]
        )
    return True


@kernel
def hash_fixed(
    data: NDArray[np.uint8],
    width: int,
    key: tuple[np.uint64, np.uint64],
    low: NDArray[np.uint64],
    high: NDArray[np.uint64],
) -> bool:
    """Hash data[i * width:(i + 1) * width] for each row i. False if that is not in the data."""
    if len(low) * width > len(data):
        return False
    for row in range(len(low)):
        low[u64(row)], high[u64(row)] = siphash(
            address_of(data), row * width, width, key[0], key[1]
        )
    return True


@kernel
def mark_nulls(
    validity: NDArray[np.uint8],
    offset: int,
    key: tuple[np.uint64, np.uint64],
    low: NDArray[np.uint64],
    high: NDArray[np.uint64],
) -> bool:
    """Write the hash of null to each row whose bit is not set. False if there are too few bits."""
    if (offset + len(low) + 7) // 8 > len(validity):
        return False
    null_low, null_high = siphash(address_of(validity), 0, 0, key[0] ^ NULL_KEY, key[1])
    for row in range(len(low)):
        bit = offset + row
        if not (validity[u64(bit >> 3)] >> np.uint8(bit & 7)) & np.uint8(1):
            low[u64(row)], high[u64(row)] = null_low, null_high
    return True
