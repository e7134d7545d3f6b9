"""Verification before a transaction's first batch on a partition (KIP-890): the seam.

Owns what a coordinator is asked, and the answer where there is none. It is asked without a wait, so
that batches are decided in the order of arrival: who must wait first refuses with an error that the
client tries again, and must then refuse later sequences of the same producer too, until the first
one has come again: a partition that does not know a producer takes any sequence for its first.
Without verification, a batch that is late would open a transaction that nobody ends.
"""

import dataclasses
from collections.abc import Callable

from holdfast.identifiers import PartitionId
from holdfast.log.append import Refused


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalAppend:
    """A batch that would open a transaction on a partition."""

    transactional_id: str | None
    producer_id: int
    producer_epoch: int
    partition: PartitionId
    api_version: int
    """Of Produce: since 12 the batch itself adds the partition to the transaction."""


VerifyTransaction = Callable[[TransactionalAppend], Refused | None]
"""None: the coordinator knows, durably, that this partition is part of the transaction."""


def without_coordinator(append: TransactionalAppend) -> Refused | None:
    """Nobody would end the transaction: it must not begin."""
    del append
    return Refused("INVALID_RECORD", "transactional batches are not served yet")
