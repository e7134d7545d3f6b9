"""Translates a store's address for the table libraries.

Pure, except that a relative path is made absolute. Owns the root for files and the settings that an
address carries (endpoint, region). Must never hold credentials: the libraries take them from the
same environment variables.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from holdfast.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A store's address in the form that deltalake and pyiceberg take."""

    root: str
    """The address of the files, without a slash at its end."""
    is_local: bool
    delta_options: Mapping[str, str]
    iceberg_properties: Mapping[str, str]


_DELTA = {
    "endpoint": "AWS_ENDPOINT_URL",
    "region": "AWS_REGION",
    "virtual_hosted_style": "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
    "skip_signature": "AWS_SKIP_SIGNATURE",
}
_ICEBERG = {"endpoint": "s3.endpoint", "region": "s3.region"}


def place_of(url: str) -> Place:
    """Return the place for a store's address; ConfigurationError if tables cannot be there."""
    scheme = urlsplit(url).scheme if "://" in url else ""
    if scheme in ("", "file"):
        path = unquote(urlsplit(url).path) if scheme else url
        return Place(
            root=str(Path(path).expanduser().absolute()),
            is_local=True,
            delta_options={},
            iceberg_properties={},
        )
    if scheme not in ("s3", "gs", "az"):
        raise ConfigurationError(f"{url}: a table cannot have its files there")
    from holdfast.store.object_address import parse_object_address

    address = parse_object_address(url)
    root = f"{scheme}://{address.bucket}" + (f"/{address.prefix}" if address.prefix else "")
    delta: dict[str, str] = {}
    iceberg: dict[str, str] = {}
    if scheme == "s3":
        delta = {_DELTA[k]: value for k, value in address.options.items() if k in _DELTA}
        iceberg = {_ICEBERG[k]: value for k, value in address.options.items() if k in _ICEBERG}
        if address.options.get("endpoint", "").startswith("http://"):
            delta["AWS_ALLOW_HTTP"] = "true"
    elif scheme == "az" and "account" in address.options:
        delta["AZURE_STORAGE_ACCOUNT_NAME"] = address.options["account"]
    return Place(root=root, is_local=False, delta_options=delta, iceberg_properties=iceberg)
