"""The interface that the chain and the sink expect of a file format.

Owns the vocabulary. A format must produce files that ordinary tools read. It must never change a
record: it reports the records that it cannot hold as they are.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.columnar.arrow import RecordBatch
from holdfast.landing.facts import Facts
from holdfast.store.interface import Buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfit:
    """A record that the format cannot hold as it is."""

    offset: int
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """A file in two parts. The facts block goes between them."""

    body: tuple[Buffer, ...]
    body_crc: int
    """CRC-32C of the body, computed where the body is made, never on the event loop."""
    after: bytes = b""

    @property
    def body_bytes(self) -> int:
        return sum(len(buffer) for buffer in self.body)


class RecordWriter(Protocol):
    """One file that is being written, with its records compressed. One thread at a time."""

    @property
    def rows(self) -> int:
        """The number of records that were added."""
        ...

    @property
    def held_bytes(self) -> int:
        """The memory that it holds now."""
        ...

    def add(self, batch: RecordBatch) -> None:
        """Add the next records, all of which fit according to sort_out or check."""
        ...

    def finish(self, described: Mapping[str, str]) -> Encoded:
        """Return the whole file. Nothing can be added afterwards."""
        ...


class Format(Protocol):
    """The conversion of Arrow record batches to the bytes of a file and back."""

    @property
    def name(self) -> str:
        """The name in the facts and the origin of a chain. It never changes."""
        ...

    @property
    def extension(self) -> str:
        """The end of the format's keys, with the dot."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a record that it uses. No others need to be decoded for it."""
        ...

    def check(self, batch: RecordBatch) -> Unfit | None:
        """Return the first record that the format cannot hold, or None."""
        ...

    def sort_out(self, batch: RecordBatch) -> tuple[RecordBatch, list[Unfit]]:
        """Return the records that fit, and those that do not with reasons, both in order."""
        ...

    def writer(self) -> RecordWriter:
        """Return a writer of a new file."""
        ...

    def encode(self, batches: Sequence[RecordBatch], described: Mapping[str, str]) -> Encoded:
        """Return one file. There may be no batches."""
        ...

    def decode(self, body: bytes, facts: Facts) -> Iterator[RecordBatch]:
        """Yield the records of a whole, proved object."""
        ...


def encode_with(
    writer: RecordWriter, batches: Sequence[RecordBatch], described: Mapping[str, str]
) -> Encoded:
    """Return a file of batches that are all available already."""
    for batch in batches:
        writer.add(batch)
    return writer.finish(described)
