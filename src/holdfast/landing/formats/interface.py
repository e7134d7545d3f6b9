"""What the chain asks of a file format.

Owns the vocabulary. A format must give files that plain tools read, and must never change a record
on its way: what it cannot hold as it is, it names.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.landing.arrow import RecordBatch
from holdfast.landing.facts import Facts
from holdfast.store.interface import Buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfit:
    """A record that the format cannot hold as it is."""

    offset: int
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """A file, open where the block of facts goes in."""

    body: tuple[Buffer, ...]
    after: bytes = b""


class Format(Protocol):
    """Record batches to bytes and back."""

    @property
    def name(self) -> str:
        """What the facts and the origin of a chain call it; it never changes."""
        ...

    @property
    def extension(self) -> str:
        """The end of its keys, with the dot."""
        ...

    def check(self, batch: RecordBatch) -> Unfit | None:
        """The first record that cannot be held, or None."""
        ...

    def encode(self, batches: Sequence[RecordBatch], described: Mapping[str, str]) -> Encoded:
        """One file; the batches may be none."""
        ...

    def decode(self, body: bytes, facts: Facts) -> Iterator[RecordBatch]:
        """The records of a whole, proved object."""
        ...
