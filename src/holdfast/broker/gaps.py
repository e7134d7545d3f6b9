"""Batches of idempotent producers that arrive before earlier batches, which are missing.

Owns how long such a gap is treated as one that closes by itself. A producer has several batches in
flight. Around a hand-off, the first of them may be refused, or still be with the previous leader,
when the next one finds its lane served. If librdkafka then gets OUT_OF_ORDER_SEQUENCE_NUMBER, it
silently starts a new producer epoch and sends everything unanswered again, on all partitions:
batches that are already in a log are there twice. So an early batch gets a retriable error,
whatever made the gap. Clients then wait for their batches in flight, and resend the first of them
first.
"""

from typing import NamedTuple

from holdfast.environment import Environment
from holdfast.identifiers import PartitionId
from holdfast.log.append import Accepted, Early
from holdfast.protocol.api import ErrorCode, Refused
from holdfast.records.batch import BatchHeader

CLOSES_S = 10.0
"""How long a gap may take to close. A batch that was retried for this long behind the same gap is
decided as Kafka would decide it."""
GAPS_MAX = 10_000


class _Gap(NamedTuple):
    producer_epoch: int
    expected_sequence: int
    first_seen: float
    last_seen: float


class Gaps:
    """The gaps of the last seconds. Nothing is kept for producers that are in order."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._gaps: dict[tuple[PartitionId, int], _Gap] = {}

    def judge(
        self, partition: PartitionId, header: BatchHeader, early: Early
    ) -> Accepted | Refused:
        """Return a retriable refusal, or the final decision if the gap is permanent."""
        if not self._may_close(partition, header, early.expected_sequence):
            return early.otherwise
        return Refused(
            ErrorCode.NOT_ENOUGH_REPLICAS,
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
        self._gaps[partition, header.producer_id] = gap  # the newest is evicted last
        if len(self._gaps) > GAPS_MAX:
            del self._gaps[next(iter(self._gaps))]
        return now - first_seen < CLOSES_S
