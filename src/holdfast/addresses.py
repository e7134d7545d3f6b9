"""Addresses as people write them: the path of a directory, or a scheme and the rest.

Pure. Owns how the two are told apart. Must never know which schemes there are.
"""

import re
from pathlib import Path

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):/")


def scheme_of(text: str) -> str:
    """Return the scheme of an address, as it is written; empty for a path."""
    found = _SCHEME.match(text)
    return found[1] if found is not None else ""


def is_local_address(text: str) -> bool:
    return scheme_of(text) in ("", "file")


def local_path(text: str) -> Path:
    """Return the path of a local address, with or without file:// before it."""
    return Path(re.sub(r"^file:/+", "/", text))
