"""Kafka's default partitioner over a column of keys, compiled: murmur2, made positive, modulo.

Pure. Owns the hash. Its numbers must be those of Kafka's Java client, so that a key goes to the
partition of its earlier records. Must never read past the buffer: the kernel checks each start and
end, and returns False if one does not fit.
"""

import numpy as np
from numpy.typing import NDArray

from holdfast.columnar.arrow import Array, plain, variable_parts
from holdfast.columnar.compiled import Address, address_of, byte_at, i64, kernel, u64
from holdfast.errors import CorruptObject

SEED = u64(0x9747B28C)
FACTOR = u64(0x5BD1E995)
WORD = u64(0xFFFFFFFF)
POSITIVE = u64(0x7FFFFFFF)


@kernel
def murmur2(data: Address, start: int, length: int) -> np.uint64:
    """Return the 32 bits of the hash of a range. The caller has checked that it is in the data."""
    found = (SEED ^ u64(length)) & WORD
    whole = start + (length & ~3)
    for position in range(start, whole, 4):
        word = u64(byte_at(data, position))
        word |= u64(byte_at(data, position + 1)) << u64(8)
        word |= u64(byte_at(data, position + 2)) << u64(16)
        word |= u64(byte_at(data, position + 3)) << u64(24)
        word = (word * FACTOR) & WORD
        word ^= word >> u64(24)
        word = (word * FACTOR) & WORD
        found = ((found * FACTOR) & WORD) ^ word
    left = length & 3
    if left > 0:
        for i in range(left):
            found ^= u64(byte_at(data, whole + i)) << u64(8 * i)
        found = (found * FACTOR) & WORD
    found ^= found >> u64(13)
    found = (found * FACTOR) & WORD
    return found ^ (found >> u64(15))


@kernel
def _hash_rows(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int32] | NDArray[np.int64],
    found: NDArray[np.int64],
) -> bool:
    for row in range(len(found)):
        start = i64(offsets[u64(row)])
        end = i64(offsets[u64(row + 1)])
        if start < 0 or end < start or end > len(data):
            return False
        found[u64(row)] = i64(murmur2(address_of(data), start, end - start) & POSITIVE)
    return True


def key_hashes(keys: Array) -> NDArray[np.int64]:
    """Return a number for each key. Modulo the number of partitions, it is the key's partition.

    The number of a null key has no meaning.
    """
    column = plain(keys)
    found = np.zeros(len(column), dtype=np.int64)
    if column.null_count < len(column) and not _hash_rows(*variable_parts(column), found):
        raise CorruptObject(f"a column of {column.type} with {len(column)} rows lies about itself")
    return found
