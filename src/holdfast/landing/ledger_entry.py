"""One committed micro-batch as an object: its source offsets, its output files and its state.

Pure. Owns the fields and their bytes. An entry carries the hash of the previous one, so that a
ledger in which an entry was swapped or restored is recognised. Must never interpret the state or
the offsets: they belong to the code that wrote them.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from holdfast.errors import CallError, CorruptObject
from holdfast.landing.data_files import in_path_order, number_of, sink_id_problem
from holdfast.landing.sealed import hash_in, seal, unseal

KIND = "ledger"
NO_HASH = "0" * 64
"""The previous_hash of the first entry."""


class LedgerEntryKind(enum.Enum):
    """The reason why an entry was written."""

    MICRO_BATCH = "micro-batch"
    REWRITE = "rewrite"
    """Files were replaced by others with the same rows. The position is unchanged."""


class SourceRange(msgspec.Struct, frozen=True, kw_only=True):
    """The range that a micro-batch read from one source: JSON of Spark's offset log, opaque."""

    start: str | None
    end: str


class FileRole(enum.Enum):
    """The meaning of a file's rows to readers."""

    ROWS = "rows"
    LATE = "late"
    """The rows were too late to be judged. They are kept apart from the output, never dropped."""


class OutputFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that became visible with its entry."""

    path: str
    """The key in the store."""
    rows: int
    bytes: int
    checksum: str = ""
    """The result of checksum_of. Empty if none was computed."""
    partition_values: dict[str, str | None] = {}
    """In the order of the path's folders, which is that of the pipeline's partition_by."""
    role: FileRole = FileRole.ROWS

    def __post_init__(self) -> None:
        if len(self.partition_values) > 1:
            ordered = in_path_order(self.partition_values, self.path)
            msgspec.structs.force_setattr(self, "partition_values", ordered)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One object of a ledger."""

    sink_id: str
    n: int
    previous_hash: str
    writer_id: str
    kind: LedgerEntryKind
    query_id: str
    batch_id: int
    sources: tuple[SourceRange, ...]
    files: tuple[OutputFile, ...]
    removed: tuple[str, ...] = ()
    """Paths of earlier entries that no longer count."""
    state: bytes = b""
    """The state that keyed state pins. Opaque here, base64 in the object."""
    counts: dict[str, int] = {}
    event_time_watermark_ms: int | None = None
    metadata: dict[str, str] = {}
    committed_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """The identity of a micro-batch, before it has run."""

    query_id: str
    batch_id: int
    sources: tuple[SourceRange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """The effects of a micro-batch, all of which become visible at once."""

    files: tuple[OutputFile, ...] = ()
    state: bytes = b""
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    event_time_watermark_ms: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The newest entry, and its hash, which the next entry must name."""

    entry: Entry
    hash: str


def entry_prefix(sink_id: str) -> str:
    return f"ledger/{sink_id}/"


def entry_key(sink_id: str, n: int) -> str:
    return f"ledger/{sink_id}/{n:020d}"


def encode_entry(entry: Entry) -> bytes:
    return seal(KIND, entry)


def decode_entry(body: bytes, *, sink_id: str, n: int) -> Head:
    """Return entry n of a sink. Raise CorruptObject if it is another one or was changed."""
    key = entry_key(sink_id, n)
    entry = unseal(KIND, Entry, body, key=key)
    if (entry.sink_id, entry.n) != (sink_id, n):
        raise CorruptObject(
            f"{key}: it was copied here: it is entry {entry.n} of sink {entry.sink_id}"
        )
    return Head(entry=entry, hash=hash_in(body))


def check_link(before: str, following: Head) -> None:
    """Raise CorruptObject unless an entry names the hash of the previous one."""
    if following.entry.previous_hash != before:
        entry = following.entry
        raise CorruptObject(
            f"{entry_key(entry.sink_id, entry.n)}: it does not follow the entry before it: one of"
            " the two was changed, or restored from another copy; restore the whole ledger of sink"
            f" {entry.sink_id}"
        )


def check_effects(effects: Effects, *, sink_id: str, n: int) -> None:
    """Raise CallError unless each file is named for this sink and this number.

    The sweep relies on this: a file that is named for n can only ever be committed by entry n.
    """
    problem = sink_id_problem(sink_id)
    if problem is not None:
        raise CallError(problem)
    for file in effects.files:
        if number_of(file.path, sink_id) != n:
            raise CallError(
                f"entry {n} of sink {sink_id} cannot commit the file {file.path}: its name is not"
                " one for this entry; take the path from data_key"
            )
