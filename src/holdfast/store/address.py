"""From the address of a store, as a person writes it, to the store.

Owns which schemes there are. Must never guess: an address that is not understood is refused with
the nearest one that would be.
"""

import difflib
import re
from urllib.parse import unquote, urlsplit

from holdfast.environment import Environment
from holdfast.errors import ConfigurationError
from holdfast.store.directory import DirectoryStore
from holdfast.store.interface import Store
from holdfast.store.memory import MemoryStore

OBJECT_STORE_SCHEMES = ("s3", "gs", "az")
SCHEMES = (*OBJECT_STORE_SCHEMES, "file", "memory")
EXAMPLES = "s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, file:///path or a path"

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):/")


def open_store(url: str, *, environment: Environment, keeps_trying: bool = True) -> Store:
    """The store at a directory path, file://, s3://, gs://, az:// or memory://.

    A remote store that refuses our credentials may take them later, or others that are found by
    then, so that is CredentialsRefused. Without `keeps_trying` it is a ConfigurationError where the
    store has never answered anything else: somebody waits to be told.

    Raises ConfigurationError where there is no such kind of store, or it cannot be set up. A
    remote one is not contacted yet.
    """
    if not url.strip():
        raise ConfigurationError(f"the store's address is empty: use {EXAMPLES}")
    found = _SCHEME.match(url)
    if found is None:
        return DirectoryStore(url)
    scheme = found.group(1)
    if scheme in OBJECT_STORE_SCHEMES:
        # obstore takes tens of milliseconds to import, and a local store does without it.
        from holdfast.store.objects import open_object_store

        return open_object_store(url, environment=environment, keeps_trying=keeps_trying)
    match scheme:
        case "file":
            return DirectoryStore(file_path(url))
        case "memory":
            return MemoryStore(environment=environment, url=url)
        case _:
            raise ConfigurationError(_unknown_scheme(scheme))


def file_path(url: str) -> str:
    """The path of a file:// address. A refusal does not repeat it: it may hold a password."""
    try:
        host, path = urlsplit(url)[1:3]
    except ValueError:
        host, path = "?", ""
    if host not in ("", "localhost") or not path.startswith("/"):
        raise ConfigurationError(
            "the file:// address names a host: use three slashes, as in file:///var/holdfast"
        )
    return unquote(path)


def _unknown_scheme(scheme: str) -> str:
    aliases = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "azure": "az", "abfs": "az", "abfss": "az"}
    nearest = aliases.get(scheme.lower())
    if nearest is None:
        close = difflib.get_close_matches(scheme.lower(), SCHEMES, n=1)
        nearest = close[0] if close else None
    hint = f"did you mean {nearest}://? " if nearest else ""
    return f"there is no store of the kind {scheme}://: {hint}use {EXAMPLES}"
