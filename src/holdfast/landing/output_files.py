"""Reading the files that a ledger names: whole and proved, or their footers alone.

Owns the checks against what the entry says. Must never give out bytes that are not those that were
committed, and must name the file in every error.
"""

from typing import Any

from holdfast.environment import Environment
from holdfast.errors import CorruptObject, ObjectNotFound
from holdfast.landing.arrow import pa, pq
from holdfast.landing.data_files import checksum_of
from holdfast.landing.ledger_entry import OutputFile
from holdfast.store.interface import Store
from holdfast.store.patience import patiently

TAIL_BYTES = 64 * 1024
"""Enough for the footer of nearly every file: one read."""
GIVE_UP_AFTER_S = 120.0
_FOOTER_END = 8
_MAGIC = b"PAR1"


async def read_output(store: Store, file: OutputFile, *, environment: Environment) -> bytes:
    """All bytes of a file, once they are found to be those that its entry names."""

    async def read() -> bytes:
        body = await _part(store, file, 0, None)
        if len(body) != file.bytes:
            raise CorruptObject(f"{file.path}: {len(body)} bytes; the ledger says {file.bytes}")
        if file.checksum and checksum_of(body) != file.checksum:
            raise CorruptObject(
                f"{file.path}: its checksum is {checksum_of(body)}; the ledger says {file.checksum}"
            )
        return body

    return await patiently(read, environment=environment, give_up_after_s=GIVE_UP_AFTER_S)


async def read_footer(store: Store, file: OutputFile, *, environment: Environment) -> Any:
    """The metadata of a Parquet file (pyarrow's FileMetaData), by one small read or two."""

    async def read() -> Any:
        # One byte more than there should be: a longer object is another one.
        wanted = min(file.bytes, TAIL_BYTES)
        tail = await _part(store, file, file.bytes - wanted, wanted + 1)
        if len(tail) != wanted or tail[-4:] != _MAGIC:
            raise CorruptObject(f"{file.path}: it does not end as a Parquet file of its size does")
        length = int.from_bytes(tail[-_FOOTER_END:-4], "little") + _FOOTER_END
        if length > len(tail):
            tail = await _part(store, file, max(0, file.bytes - length), length)
        try:
            found = pq.read_metadata(pa.BufferReader(tail))
        except (pa.ArrowInvalid, OSError) as error:
            raise CorruptObject(f"{file.path}: its footer cannot be read: {error}") from error
        if found.num_rows != file.rows:
            raise CorruptObject(f"{file.path}: {found.num_rows} rows; the ledger says {file.rows}")
        return found

    return await patiently(read, environment=environment, give_up_after_s=GIVE_UP_AFTER_S)


async def _part(store: Store, file: OutputFile, start: int, length: int | None) -> bytes:
    try:
        return await store.read(file.path, start=start, length=length)
    except ObjectNotFound as error:
        raise ObjectNotFound(
            f"{file.path}: the ledger named it, and it is not in {store.url}: either files were"
            " compacted and swept since this began, then begin again; or it was deleted by hand"
        ) from error
