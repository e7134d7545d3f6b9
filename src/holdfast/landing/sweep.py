"""Deletion of output files that can never count: the only place in landing that deletes.

Owns the rule, which needs no clock. A file is named for the ledger entry n that was to commit it,
and `Ledger.commit` accepts only files named for the entry that it writes. Entries are created once
and never deleted. So if entry n exists and does not name the file, no entry ever will, and the file
may go. A file for a number above the newest entry may still be committed. It must never be deleted,
however old it is.

A file that a later entry replaced may still be read by a query that planned before. It is deleted
only after it has been replaced for `grace_ms` of wall-clock time. If that is too short, such a
query fails on a missing file, and no committed row is lost. The file also stays until every table
that follows the ledger has the entry that replaced it.
"""

from dataclasses import dataclass

from holdfast.environment import Environment
from holdfast.landing.data_files import data_prefix, is_of_a_table, number_of
from holdfast.landing.followers import marks
from holdfast.landing.landed import committed_files
from holdfast.store.interface import ObjectEntry, Store
from holdfast.store.patience import patiently

GRACE_MS = 24 * 3600 * 1000
DELETE_AT_ONCE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """The files that a sweep deleted, and those that it left for later."""

    deleted: tuple[ObjectEntry, ...]
    kept: tuple[ObjectEntry, ...]


async def sweep(
    store: Store, sink_id: str, *, environment: Environment, grace_ms: int = GRACE_MS
) -> Swept:
    """Delete the files that can never count.

    It lists first and reads the ledger afterwards, so a file that is committed in between counts as
    committed.
    """
    rows = await patiently(lambda: store.list(data_prefix(sink_id)), environment=environment)
    followed = await marks(store, sink_id, environment=environment)
    committed = await committed_files(store, sink_id, environment=environment)
    in_all_tables = min(followed.values(), default=committed.entries)
    named = {file.path for file in committed.files}
    replaced_until_ms = environment.now_ms() - grace_ms
    deleted: list[ObjectEntry] = []
    kept: list[ObjectEntry] = []
    for row in rows:
        if row.key in named or is_of_a_table(row.key, sink_id):
            continue
        replaced_ms = committed.replaced_ms.get(row.key)
        n = number_of(row.key, sink_id)
        if replaced_ms is not None:
            is_everywhere = committed.replaced_by[row.key] < in_all_tables
            is_dead = is_everywhere and replaced_ms <= replaced_until_ms
        else:
            is_dead = n is not None and n < committed.entries
        (deleted if is_dead else kept).append(row)
    keys = [row.key for row in deleted]
    for start in range(0, len(keys), DELETE_AT_ONCE):
        part = keys[start : start + DELETE_AT_ONCE]
        await patiently(lambda part=part: store.delete(part), environment=environment)
    return Swept(deleted=tuple(deleted), kept=tuple(kept))
