"""The rules for keys, which make every store treat a key alike.

Pure. A key that passes here names the same object on S3, GCS, Azure and in a local directory, and
can never leave the store's root. Must never repair a key: a wrong one is refused.
"""

import re

from holdfast.errors import CallError

KEY_BYTES_MAX = 900
"""S3 allows 1,024 bytes; the rest is for the prefix in the store's address."""
PART_BYTES_MAX = 255
"""The longest file name that Linux file systems take."""
TEMPORARY_FOLDER = ".holdfast-tmp"
"""The folder in which a directory store without O_TMPFILE keeps files that are not objects yet."""
RESERVE_FILE = ".holdfast-reserve"
"""The file that reserves room for objects that a broker must write before it can serve."""

# object_store percent-encodes these in a path, or a file system or shell gives them a meaning.
FORBIDDEN_CHARACTER = re.compile(r'[\x00-\x1f\x7f\\{}^%`\[\]"<>~#|*?]')


def key_problem(key: str) -> str | None:
    """Return what is wrong with a key; None if it is legal."""
    if not key:
        return "it is empty"
    problem = _text_problem(key)
    if problem is not None:
        return problem
    parts = key.split("/")
    for part in parts:
        if not part:
            return "a part between slashes is empty"
        if part in (".", ".."):
            return f"the part {part!r} would change the path"
        if len(part.encode()) > PART_BYTES_MAX:
            return f"a part is longer than {PART_BYTES_MAX} bytes"
    if parts[0] in (TEMPORARY_FOLDER, RESERVE_FILE):
        return f"the name {parts[0]!r} is reserved"
    return None


def check_key(key: str) -> None:
    """Raise CallError unless the key is legal."""
    problem = key_problem(key)
    if problem is not None:
        raise CallError(f"the object key {key[:200]!r} cannot be used: {problem}")


def check_prefix(prefix: str) -> None:
    """Raise CallError unless the prefix could be the start of a legal key."""
    if not prefix:
        return
    stem = prefix[:-1] if prefix.endswith("/") else prefix
    # "a/." is not a key, but "a/.x" is: only the last part of a prefix may be incomplete.
    problem = key_problem(stem) if prefix.endswith("/") else key_problem(stem + "-")
    if problem is not None:
        raise CallError(f"the prefix {prefix[:200]!r} cannot be listed: {problem}")


def _text_problem(key: str) -> str | None:
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    if size > KEY_BYTES_MAX:
        return f"it has {size} bytes; at most {KEY_BYTES_MAX} are allowed"
    found = FORBIDDEN_CHARACTER.search(key)
    return (
        None if found is None else f"it has the character {found.group()!r}, which is not allowed"
    )
