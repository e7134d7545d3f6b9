"""The files that a ledger names: written once, and read whole and proved, or only their footers.

Owns the checks against the ledger entry. Must never return bytes other than those that were
committed, nor overwrite a file, and must name the file in every error.
"""

from collections.abc import Mapping
from typing import Any

from holdfast.columnar.arrow import pa
from holdfast.environment import Environment
from holdfast.errors import CorruptObject, InvariantViolation, ObjectNotFound
from holdfast.landing.arrow import pq
from holdfast.landing.data_files import checksum_of
from holdfast.landing.ledger_entry import FileRole, OutputFile
from holdfast.store.interface import Buffer, Store
from holdfast.store.patience import patiently
from holdfast.store.put_if_absent import Lost, put_if_absent, same_bytes

TAIL_BYTES = 64 * 1024
"""Enough to read the footer of nearly every file in one read."""
GIVE_UP_AFTER_S = 120.0
_FOOTER_END = 8
_MAGIC = b"PAR1"


async def write_output(
    store: Store,
    path: str,
    body: Buffer,
    *,
    rows: int,
    partition_values: Mapping[str, str | None],
    role: FileRole,
    environment: Environment,
) -> OutputFile:
    """Write a file under a new name. Return the description for the entry that will name it."""
    outcome = await put_if_absent(
        store,
        path,
        (body,),
        is_ours=same_bytes((body,)),
        identify_bytes=None,
        environment=environment,
        deadline_seconds=GIVE_UP_AFTER_S,
    )
    if isinstance(outcome, Lost):
        raise InvariantViolation(f"{path}: another file with this name exists")
    return OutputFile(
        path=path,
        rows=rows,
        bytes=len(body),
        checksum=checksum_of(body),
        partition_values=dict(partition_values),
        role=role,
    )


async def read_output(store: Store, file: OutputFile, *, environment: Environment) -> bytes:
    """Return all bytes of a file, checked against the entry that names it."""

    async def read() -> bytes:
        body = await _part(store, file, 0, None)
        if len(body) != file.bytes:
            raise CorruptObject(
                f"{file.path}: it has {len(body)} bytes; the ledger says {file.bytes}"
            )
        if file.checksum and checksum_of(body) != file.checksum:
            raise CorruptObject(
                f"{file.path}: its checksum is {checksum_of(body)}; the ledger says {file.checksum}"
            )
        return body

    return await patiently(read, environment=environment, give_up_after_s=GIVE_UP_AFTER_S)


async def read_footer(store: Store, file: OutputFile, *, environment: Environment) -> Any:
    """Return the metadata of a Parquet file (pyarrow's FileMetaData), in one or two small reads."""

    async def read() -> Any:
        # One byte more than the file should have: a longer object is not the committed file.
        wanted = min(file.bytes, TAIL_BYTES)
        tail = await _part(store, file, file.bytes - wanted, wanted + 1)
        if len(tail) != wanted or tail[-4:] != _MAGIC:
            raise CorruptObject(f"{file.path}: its end is not that of a Parquet file of this size")
        length = int.from_bytes(tail[-_FOOTER_END:-4], "little") + _FOOTER_END
        if length > len(tail):
            tail = await _part(store, file, max(0, file.bytes - length), length)
        try:
            found = pq.read_metadata(pa.BufferReader(tail))
        except (pa.ArrowInvalid, OSError) as error:
            raise CorruptObject(
                f"{file.path}: its Parquet footer cannot be read: {error}"
            ) from error
        if found.num_rows != file.rows:
            raise CorruptObject(
                f"{file.path}: it has {found.num_rows} rows; the ledger says {file.rows}"
            )
        return found

    return await patiently(read, environment=environment, give_up_after_s=GIVE_UP_AFTER_S)


async def _part(store: Store, file: OutputFile, start: int, length: int | None) -> bytes:
    try:
        return await store.read(file.path, start=start, length=length)
    except ObjectNotFound as error:
        raise ObjectNotFound(
            f"{file.path}: the ledger names it, but it is not in {store.url}: if files were"
            " compacted and swept in the meantime, start again; if it was deleted by hand, restore"
            " it"
        ) from error
