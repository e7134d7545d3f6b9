"""Kafka's default partitioner, for one key at a time.

Pure. The results must equal those of Kafka's Java client, so that a key goes to the partition
where its earlier records are. This is plain Python, for command lines and tests. Columns of keys
are hashed by `columnar/murmur2.py`, which needs numpy.
"""

_SEED = 0x9747B28C
_FACTOR = 0x5BD1E995
_WORD = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF


def murmur2(key: bytes) -> int:
    """Return the hash that Kafka's clients use, as an unsigned 32-bit number."""
    found = (_SEED ^ len(key)) & _WORD
    whole = len(key) & ~3
    for start in range(0, whole, 4):
        word = (int.from_bytes(key[start : start + 4], "little") * _FACTOR) & _WORD
        word ^= word >> 24
        word = (word * _FACTOR) & _WORD
        found = ((found * _FACTOR) & _WORD) ^ word
    if whole < len(key):
        found ^= int.from_bytes(key[whole:], "little")
        found = (found * _FACTOR) & _WORD
    found ^= found >> 13
    found = (found * _FACTOR) & _WORD
    return found ^ (found >> 15)


def partition_of_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key in a topic with this many partitions."""
    return (murmur2(key) & _POSITIVE) % partitions
