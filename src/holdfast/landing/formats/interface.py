"""What the chain and the sink ask of a file format.

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
    body_crc: int
    """CRC-32C of the body: counted where the body is made, which is never the event loop."""
    after: bytes = b""

    @property
    def body_bytes(self) -> int:
        return sum(len(buffer) for buffer in self.body)


class Writer(Protocol):
    """One file under way, which holds its records compressed. For one thread at a time."""

    @property
    def rows(self) -> int:
        """The records that were added."""
        ...

    @property
    def held_bytes(self) -> int:
        """The memory that is held now."""
        ...

    def add(self, batch: RecordBatch) -> None:
        """The next records, all of which fit: sort_out or check has said so."""
        ...

    def finish(self, described: Mapping[str, str]) -> Encoded:
        """The whole file. Nothing can be added after that."""
        ...


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

    @property
    def columns(self) -> tuple[str, ...]:
        """What it takes from a record: no other column need be decoded for it."""
        ...

    def check(self, batch: RecordBatch) -> Unfit | None:
        """The first record that cannot be held, or None."""
        ...

    def sort_out(self, batch: RecordBatch) -> tuple[RecordBatch, list[Unfit]]:
        """The records that fit, and those that do not, each with its reason; both in order."""
        ...

    def writer(self) -> Writer:
        """A new file."""
        ...

    def encode(self, batches: Sequence[RecordBatch], described: Mapping[str, str]) -> Encoded:
        """One file; the batches may be none."""
        ...

    def decode(self, body: bytes, facts: Facts) -> Iterator[RecordBatch]:
        """The records of a whole, proved object."""
        ...


def encode_with(
    writer: Writer, batches: Sequence[RecordBatch], described: Mapping[str, str]
) -> Encoded:
    """A file of batches that are all here already."""
    for batch in batches:
        writer.add(batch)
    return writer.finish(described)
