"""The facts about transactions: all that a coordinator knows, and the next one needs.

Pure. Owns their encoding. Fields are positional: new ones go last, with a default.
"""

import msgspec

from holdfast.identifiers import PartitionId


class ProducerInitialised(msgspec.Struct, frozen=True, array_like=True, tag="ti"):
    """A producer took over a transactional id: producers with an older epoch are fenced."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    at_ms: int
    previous_producer_id: int = -1
    previous_producer_epoch: int = -1
    """The producer, with its id, that the request claimed: if sent again, it claims the same."""


class TransactionExtended(msgspec.Struct, frozen=True, array_like=True, tag="tx"):
    """Partitions and groups are in the transaction now; the first ones begin it."""

    transactional_id: str
    partitions: list[PartitionId]
    groups: list[str]
    at_ms: int


class TransactionEnding(msgspec.Struct, frozen=True, array_like=True, tag="tp"):
    """How the transaction ends is decided; its markers are still to be written."""

    transactional_id: str
    committed: bool
    marker_epoch: int
    """The producer epoch of the markers: with KIP-890 one above that of the records."""
    next_producer_id: int
    """The producer id that continues under the transactional id: a new one if epochs ran out."""
    next_producer_epoch: int
    at_ms: int
    fences: bool = False
    """The producer did not ask for this: it took too long, or another one took over."""


class TransactionEnded(msgspec.Struct, frozen=True, array_like=True, tag="te"):
    """The transaction is over: all markers are in their logs."""

    transactional_id: str
    at_ms: int


class TransactionalIdExpired(msgspec.Struct, frozen=True, array_like=True, tag="tf"):
    """A transactional id that was not used for long is forgotten."""

    transactional_id: str


TransactionFact = (
    ProducerInitialised
    | TransactionExtended
    | TransactionEnding
    | TransactionEnded
    | TransactionalIdExpired
)
