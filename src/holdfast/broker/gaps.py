"""Batches of idempotent producers that came before others of theirs, which are missing.

Owns how long a gap may be one that closes by itself. A producer has several batches under way, and
around a hand-off the first of them may be refused, or still be with the leader before, when the
next one finds its lane served. librdkafka, called out of order then, begins a new producer epoch
without a word and sends all again that was not answered yet, on all partitions: what is in a log
already is there twice. So who is early is told to try again, whoever made the gap. Clients then
wait for what they have under way, and send the first of it first.
"""

from typing import NamedTuple

from holdfast.environment import Environment
from holdfast.identifiers import PartitionId
from holdfast.log.append import Accepted, Early, Refused
from holdfast.protocol.api import ErrorCode
from holdfast.records.batch import BatchHeader

CLOSES_S = 10.0
"""What is tried again for so long, and has the same gap before it, has it for good."""
GAPS_MAX = 10_000


class _Gap(NamedTuple):
    producer_epoch: int
    expected_sequence: int
    first_seen: float
    last_seen: float


class Gaps:
    """What was early, for a while. Nothing is kept of producers that are in order."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._gaps: dict[tuple[PartitionId, int], _Gap] = {}

    def judge(
        self, partition: PartitionId, header: BatchHeader, early: Early
    ) -> Accepted | Refused:
        """To be tried again, unless the gap is there to stay."""
        if not self._may_close(partition, header, early.expected_sequence):
            return early.otherwise
        return Refused(
            ErrorCode.NOT_ENOUGH_REPLICAS.name,
            f"{partition}: producer {header.producer_id} epoch {header.producer_epoch}: sequence"
            f" {header.base_sequence} arrived before an earlier sequence; try again",
        )

    def _may_close(self, partition: PartitionId, header: BatchHeader, expected: int) -> bool:
        now = self._environment.monotonic()
        known = self._gaps.pop((partition, header.producer_id), None)
        is_same = (
            known is not None
            and (known.producer_epoch, known.expected_sequence) == (header.producer_epoch, expected)
            and now - known.last_seen <= CLOSES_S
        )
        first_seen = known.first_seen if known is not None and is_same else now
        gap = _Gap(header.producer_epoch, expected, first_seen, now)
        self._gaps[partition, header.producer_id] = gap  # the newest is the last to go
        if len(self._gaps) > GAPS_MAX:
            del self._gaps[next(iter(self._gaps))]
        return now - first_seen < CLOSES_S
