"""The partition of a key is the one that Kafka's Java client chooses."""

import numpy as np
import pyarrow as pa
import pytest

from holdfast.client.partitioner import murmur2, partition_of_key
from holdfast.columnar.murmur2 import key_hashes


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_that_of_the_vectors_in_kafkas_own_tests(key: bytes, signed: int):
    assert murmur2(key) == signed % 2**32


def test_a_single_key_and_a_column_of_keys_are_hashed_alike():
    keys = [bytes(range(n)) for n in range(60)] + [b"\xff" * n for n in range(9)]
    column = key_hashes(pa.array(keys, pa.binary()))
    assert np.asarray(column).tolist() == [murmur2(key) & 0x7FFFFFFF for key in keys]
    assert partition_of_key(b"", 1) == 0
