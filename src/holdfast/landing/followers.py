"""Tables that follow a ledger: how far each has come, so that nothing it still names is removed.

Owns `tables/<sink id>/<table>/<entries>`: small objects, each saying that the table holds the first
so many entries. One is made when a table begins to follow and one after each entry that replaces
files. A sweep keeps what an entry replaced until every table has that entry. They decide nothing
else: what a table holds, the table says. A table that no longer follows is forgotten by deleting
its folder here.
"""

import re

import msgspec

from holdfast.environment import Environment
from holdfast.errors import CallError
from holdfast.store.interface import Store
from holdfast.store.patience import patiently

PREFIX = "tables/"
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,199}")


def follower_name(*parts: str) -> str:
    """A legal name from any texts."""
    joined = re.sub(r"[^a-zA-Z0-9._-]+", "-", "-".join(parts)).strip("-._")[:200]
    if not _NAME.fullmatch(joined):
        raise CallError(f"{parts!r} cannot be made into the name of a table")
    return joined


async def marks(store: Store, sink_id: str, *, environment: Environment) -> dict[str, int]:
    """For each table that follows a sink, how many entries it is known to hold."""
    prefix = f"{PREFIX}{sink_id}/"
    rows = await patiently(lambda: store.list(prefix), environment=environment)
    found: dict[str, int] = {}
    for row in rows:
        name, _, digits = row.key.removeprefix(prefix).rpartition("/")
        if name and len(digits) == 20 and digits.isdigit():
            found[name] = max(found.get(name, 0), int(digits))
    return found


async def mark(
    store: Store, sink_id: str, name: str, entries: int, *, environment: Environment, where: str
) -> None:
    """Say that a table holds the first so many entries; to say it twice does no harm."""
    if not _NAME.fullmatch(name):
        raise CallError(f"the table name {name[:80]!r} cannot be part of an object key")
    key = f"{PREFIX}{sink_id}/{name}/{entries:020d}"
    body = msgspec.json.encode({"table": where, "entries": entries})
    await patiently(lambda: store.create(key, (body,)), environment=environment)
