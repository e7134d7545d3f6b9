"""The names of output files, which are never used twice and say which ledger entry they are for.

Pure. Owns `data/<sink id>/<partition columns>/<n>-<attempt>-<task><extension>`, under `_late/` for
late records. A file counts only through the entry that names it. Its name must never be taken as a
sign that it is committed.
"""

import re
from collections.abc import Mapping
from urllib.parse import quote

from fastcrc import crc32

from holdfast.errors import CallError
from holdfast.store.interface import Buffer

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
LATE_FOLDER = "_late/"
TABLE_FOLDERS = ("_delta_log", "metadata")
"""Folders of a table whose root is the data folder of a sink. Holdfast does not look into them."""
_SINK_ID = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,99}")
_NAME = re.compile(r"([0-9]{20})-[^/]+")


def sink_id_problem(sink_id: str) -> str | None:
    """Say what is wrong with a sink id, or return None if it is legal."""
    if _SINK_ID.fullmatch(sink_id):
        return None
    return (
        f"the sink id {sink_id[:120]!r} cannot be used: use 1 to 100 of a-z, A-Z, 0-9, '.', '_',"
        " '-', with a letter or digit first"
    )


def data_prefix(sink_id: str) -> str:
    return f"data/{sink_id}/"


def data_key(
    sink_id: str,
    n: int,
    *,
    attempt: str,
    task: int,
    extension: str,
    partition_values: Mapping[str, str | None] | None = None,
    part: int = 0,
    is_late: bool = False,
) -> str:
    """Return the key for one file of one task attempt of entry n.

    `attempt` must be new each time.
    """
    if not re.fullmatch(r"[a-zA-Z0-9]+", attempt):
        raise CallError(f"the attempt {attempt!r} may have only letters and digits")
    folders = "".join(
        f"{_folder(name, value)}/" for name, value in (partition_values or {}).items()
    )
    # The vacuum of a table that has its root here skips folders that begin with an underscore.
    apart = LATE_FOLDER if is_late else ""
    name = f"{n:020d}-{attempt}-{task:05d}-{part:03d}{extension}"
    return f"{data_prefix(sink_id)}{apart}{folders}{name}"


def in_path_order(partition_values: Mapping[str, str | None], path: str) -> dict[str, str | None]:
    """Return the partition values in the order of the folders of a path.

    Sealed documents sort their keys, so only the path keeps the order that the user asked for.
    """
    places = {folder: place for place, folder in enumerate(path.split("/"))}
    ordered = sorted(partition_values.items(), key=lambda item: places.get(_folder(*item), -1))
    return dict(ordered)


def number_of(path: str, sink_id: str) -> int | None:
    """Return the entry that a file is meant for. None if it is no output file of the sink."""
    if not path.startswith(data_prefix(sink_id)):
        return None
    found = _NAME.fullmatch(path.rsplit("/", 1)[-1])
    return None if found is None else int(found[1])


def is_of_a_table(path: str, sink_id: str) -> bool:
    """True if an object in the data folder belongs to a table that has its root there."""
    folder, slash, _ = path.removeprefix(data_prefix(sink_id)).partition("/")
    return bool(slash) and folder in TABLE_FOLDERS


def checksum_of(body: Buffer) -> str:
    """Return the text for OutputFile.checksum."""
    return f"crc32c:{crc32.iscsi(bytes(body)):08x}"


def _folder(name: str, value: str | None) -> str:
    return f"{_escaped(name)}={NO_VALUE if value is None else _escaped(value)}"


def _escaped(text: str) -> str:
    # A key must not contain '%', so we write =3A where Hive writes %3A.
    return quote(text, safe="").replace("%", "=") or NO_VALUE
