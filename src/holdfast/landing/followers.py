"""Marks of how far each table that follows a ledger has come, which a sweep must respect.

Owns `tables/<sink id>/<table>/<entries>`: small objects that say how many entries, counted from the
first, the table holds. One is written when a table begins to follow, and one after each entry that
replaces files. A sweep keeps the files that an entry replaced until every table has that entry. The
marks must never decide anything else: the table itself says what it holds. To forget a table that
no longer follows, delete its folder here.
"""

import re

import msgspec

from holdfast.environment import Environment
from holdfast.errors import CallError
from holdfast.quantities import is_number
from holdfast.store.interface import Store
from holdfast.store.patience import patiently

PREFIX = "tables/"
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,199}")


def follower_name(*parts: str) -> str:
    """Return a legal name made of any texts."""
    joined = re.sub(r"[^a-zA-Z0-9._-]+", "-", "-".join(parts)).strip("-._")[:200]
    if not _NAME.fullmatch(joined):
        raise CallError(f"{parts!r} cannot be made into the name of a table")
    return joined


async def marks(store: Store, sink_id: str, *, environment: Environment) -> dict[str, int]:
    """Return, for each table that follows a sink, how many entries it is known to hold."""
    prefix = f"{PREFIX}{sink_id}/"
    rows = await patiently(lambda: store.list(prefix), environment=environment)
    found: dict[str, int] = {}
    for row in rows:
        name, _, digits = row.key.removeprefix(prefix).rpartition("/")
        if name and len(digits) == 20 and is_number(digits):
            found[name] = max(found.get(name, 0), int(digits))
    return found


async def mark(
    store: Store, sink_id: str, name: str, entries: int, *, environment: Environment, where: str
) -> None:
    """Record that a table holds the first `entries` entries; safe to repeat."""
    if not _NAME.fullmatch(name):
        raise CallError(f"the table name {name[:80]!r} cannot be part of an object key")
    key = f"{PREFIX}{sink_id}/{name}/{entries:020d}"
    body = msgspec.json.encode({"table": where, "entries": entries})
    await patiently(lambda: store.create(key, (body,)), environment=environment)
