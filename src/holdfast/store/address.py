"""Open the store at an address that a person wrote.

Owns the list of schemes. Must never guess: an unknown address is refused, with the nearest known
scheme as a hint.
"""

import difflib
from urllib.parse import unquote, urlsplit

from holdfast.addresses import scheme_of
from holdfast.environment import Environment
from holdfast.errors import ConfigurationError
from holdfast.store.directory import DirectoryStore
from holdfast.store.interface import Store
from holdfast.store.memory import MemoryStore

OBJECT_STORE_SCHEMES = ("s3", "gs", "az")
SCHEMES = (*OBJECT_STORE_SCHEMES, "file", "memory")
EXAMPLES = "s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, file:///path or a path"


def open_store(url: str, *, environment: Environment, keeps_trying: bool = True) -> Store:
    """Return the store at a directory path, file://, s3://, gs://, az:// or memory://.

    Calls of a remote store raise CredentialsRefused if it refuses our credentials, because it may
    accept them, or newer ones, later. Without `keeps_trying` they raise ConfigurationError if the
    store has never given another answer, because a person is waiting for the result.

    Raises ConfigurationError if there is no such kind of store, or if it cannot be set up. A remote
    store is not contacted yet.
    """
    if not url.strip():
        raise ConfigurationError(f"the store's address is empty: use {EXAMPLES}")
    scheme = scheme_of(url)
    if not scheme:
        return DirectoryStore(url)
    if scheme in OBJECT_STORE_SCHEMES:
        # obstore takes tens of milliseconds to import, and a local store does not need it.
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
    """Return the path of a file:// address. Errors do not repeat it: it may hold a password."""
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
