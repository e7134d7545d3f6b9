"""What the client families sent and what they were told, kept small: millions of records fit.

Owns the numbering of records and the pure check of a cold read against what was told. The n-th
record of a producer to a partition is (producer, n); its offset is unknown (-1) until it is acked.
"""

import struct
import time
from array import array
from collections import Counter

UNKNOWN = -1
_IDENTITY = struct.Struct(">HQ")
PADDING = b"." * 90
NUMBER_BITS = 40


def value_of(producer: int, number: int) -> bytes:
    """The record's value: who sent it, which one it is, and some bytes."""
    return _IDENTITY.pack(producer, number) + PADDING


def identity_of(value: bytes) -> int:
    """Producer and number in one integer."""
    producer, number = _IDENTITY.unpack_from(value)
    return producer << NUMBER_BITS | number


class Ledger:
    """Written by many threads, each (producer, partition) by one of them."""

    def __init__(self, *, producers: list[str], partitions: int) -> None:
        self.producers = producers
        self.partitions = partitions
        self.offsets = {
            (producer, partition): array("q")
            for producer in range(len(producers))
            for partition in range(partitions)
        }
        self.refused: Counter[str] = Counter()
        """Errors that a producer was told of a record, by name; its outcome stays unknown."""
        self.problems: list[str] = []
        self._acked_end = dict.fromkeys(self.offsets, 0)
        self.last_ack_at = 0.0
        self.acks = [0] * len(producers)

    def send(self, producer: int, partition: int) -> int:
        """The number of the next record."""
        column = self.offsets[producer, partition]
        column.append(UNKNOWN)
        return len(column) - 1

    def acked(self, producer: int, partition: int, number: int, offset: int) -> None:
        self.offsets[producer, partition][number] = offset
        if offset >= self._acked_end[producer, partition]:
            self._acked_end[producer, partition] = offset + 1
        self.acks[producer] += 1
        self.last_ack_at = time.monotonic()

    def failed(self, producer: int, error: str) -> None:
        self.refused[f"{self.producers[producer]}: {error}"] += 1

    def acked_end(self, partition: int) -> int:
        """The offset after the highest that anybody was told of."""
        return max(self._acked_end[producer, partition] for producer in range(len(self.producers)))

    @property
    def sent(self) -> int:
        return sum(map(len, self.offsets.values()))

    @property
    def acked_count(self) -> int:
        return sum(self.acks)


def check_cold(ledger: Ledger, partition: int, cold: "array[int]") -> list[str]:
    """What is wrong with a partition, read from 0: `cold` has an identity for each offset."""
    problems: list[str] = []
    newest = [-1] * len(ledger.producers)
    mask = (1 << NUMBER_BITS) - 1
    for offset, identity in enumerate(cold):
        producer, number = identity >> NUMBER_BITS, identity & mask
        name = ledger.producers[producer] if producer < len(ledger.producers) else "nobody"
        column = ledger.offsets.get((producer, partition))
        if column is None or number >= len(column):
            problems.append(f"phantom: partition {partition} offset {offset}: {name} #{number}")
            continue
        if number <= newest[producer]:
            problems.append(
                f"doubled or out of order: partition {partition} offset {offset}: {name} #{number}"
                f" after #{newest[producer]}"
            )
        newest[producer] = max(newest[producer], number)
        if column[number] not in (UNKNOWN, offset):
            problems.append(
                f"moved: partition {partition}: {name} #{number} was acked at {column[number]},"
                f" and is at {offset}"
            )
    for (producer, its_partition), column in ledger.offsets.items():
        if its_partition != partition:
            continue
        for number, offset in enumerate(column):
            identity = producer << NUMBER_BITS | number
            if offset != UNKNOWN and not (offset < len(cold) and cold[offset] == identity):
                problems.append(
                    f"lost: partition {partition}: {ledger.producers[producer]} #{number} was acked"
                    f" at {offset}; the log ends at {len(cold)}"
                )
    return problems
