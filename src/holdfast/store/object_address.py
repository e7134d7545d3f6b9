"""Parse an s3://, gs:// or az:// address, and make the clients that reach it.

Owns the options that an address may carry, and the retry rules of the client library. Credentials
come from elsewhere: an address that holds one is refused without repeating it. Must never give
retries to a client that creates objects.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from holdfast.errors import ConfigurationError
from holdfast.store.credentials import Credentials
from holdfast.store.keys import key_problem

Client = S3Store | GCSStore | AzureStore

NUMBER_OPTIONS = ("timeout_seconds", "connect_timeout_seconds", "threads")
CLIENT_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "s3": {
        "endpoint": "endpoint",
        "region": "region",
        "virtual_hosted_style": "virtual_hosted_style_request",
        "skip_signature": "skip_signature",
    },
    "gs": {"skip_signature": "skip_signature"},
    "az": {
        "endpoint": "endpoint",
        "account": "account_name",
        "skip_signature": "skip_signature",
    },
}
"""The options after the '?' of an address, and the client library's names for them."""
VARIABLES = {
    "AWS_DEFAULT_REGION": "region",
    "AWS_REGION": "region",
    "AWS_ENDPOINT_URL": "endpoint",
    "AWS_ENDPOINT_URL_S3": "endpoint",
}
"""Environment variables, and the client library's names for them. If two set the same name, the
later one wins. The library reads more variables by itself."""
ENDPOINT_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": (),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
"""The variables in which the client library finds an endpoint that the address does not name."""
_BUCKET = re.compile(r"[A-Za-z0-9$][A-Za-z0-9._:-]*")
_REGION = re.compile(r"[A-Za-z0-9_-]*")
_ENDPOINT = re.compile(
    r"https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?(/[A-Za-z0-9._~%/-]*)?",
    re.IGNORECASE,
)
"""The endpoints that are accepted. Others at best fail later; some make the library panic."""
SECRET_WORDS = ("key", "secret", "token", "password", "sas", "credential")
READ_RETRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectAddress:
    """An address, parsed and checked."""

    scheme: str
    bucket: str
    prefix: str
    url: str
    options: Mapping[str, str]
    timeout_seconds: float
    connect_timeout_seconds: float
    threads: int


def parse_object_address(url: str) -> ObjectAddress:
    """Parse the address. Raises ConfigurationError with the remedy."""
    try:
        parts = urlsplit(url)
    except ValueError:
        # The library's message repeats the address, which may hold a password.
        scheme = url.partition(":")[0]
        raise ConfigurationError(
            f"the {scheme}:// address cannot be read: use {scheme}://bucket/prefix"
        ) from None
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    if "@" in parts.netloc:
        raise ConfigurationError(
            f"the address {shown} carries credentials: set them as environment variables instead"
        )
    if not parts.netloc:
        raise ConfigurationError(
            f"the address {shown!r} names no bucket: use {parts.scheme}://bucket/prefix"
        )
    if not _BUCKET.fullmatch(parts.netloc):
        raise ConfigurationError(
            f"the address {shown!r} has an invalid bucket name: use letters, digits, '.', '-' and"
            f" '_', as in {parts.scheme}://my-bucket/prefix"
        )
    prefix = unquote(parts.path).strip("/")
    if prefix and (problem := key_problem(prefix)) is not None:
        raise ConfigurationError(f"the prefix of {shown} cannot be used: {problem}")
    given = _options(parts, shown)
    if "endpoint" in given:
        _check_endpoint(given["endpoint"], f"the endpoint in the address {shown}")
    if not _REGION.fullmatch(given.get("region", "")):
        raise ConfigurationError(
            f"the region in the address {shown} has an invalid character: write it as in"
            " region=eu-west-1"
        )
    numbers = {name: _number(name, given.pop(name, None), shown) for name in NUMBER_OPTIONS}
    return ObjectAddress(
        scheme=parts.scheme,
        bucket=parts.netloc,
        prefix=prefix,
        url=f"{shown}?{parts.query}" if parts.query else shown,
        options=given,
        timeout_seconds=numbers["timeout_seconds"] or 20.0,
        connect_timeout_seconds=numbers["connect_timeout_seconds"] or 5.0,
        threads=int(numbers["threads"] or 16),
    )


def make_client(
    address: ObjectAddress,
    variables: Mapping[str, str],
    credentials: Credentials,
    *,
    has_retries: bool,
) -> Client:
    """Return a client of the library. A client that creates objects must have no retries."""
    if "endpoint" not in address.options:
        for name in ENDPOINT_VARIABLES[address.scheme]:
            if variables.get(name):
                _check_endpoint(variables[name], f"the variable {name}")
    names = CLIENT_OPTIONS[address.scheme]
    config: dict[str, Any] = {}
    if address.scheme == "s3":
        config |= {VARIABLES[name]: variables[name] for name in VARIABLES if variables.get(name)}
        config |= credentials.config
    config |= {names[name]: value for name, value in address.options.items()}
    client_options: dict[str, Any] = {
        "timeout": timedelta(seconds=address.timeout_seconds),
        "connect_timeout": timedelta(seconds=address.connect_timeout_seconds),
        "allow_http": str(config.get("endpoint", "")).startswith("http://"),
    }
    retries: dict[str, Any] = {
        "max_retries": READ_RETRIES if has_retries else 0,
        "retry_timeout": timedelta(seconds=address.timeout_seconds),
    }
    constructor: Any = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}[address.scheme]
    try:
        return constructor(
            address.bucket,
            prefix=address.prefix or None,
            config=config,
            client_options=client_options,
            retry_config=retries,
        )
    except (BaseError, ValueError) as error:
        reason = str(error).partition("\n")[0][:300]
        raise ConfigurationError(f"the store {address.url} cannot be opened: {reason}") from error


def _options(parts: SplitResult, shown: str) -> dict[str, str]:
    known = (*CLIENT_OPTIONS[parts.scheme], *NUMBER_OPTIONS)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in given:
        if name in known:
            continue
        if any(word in name.lower() for word in SECRET_WORDS):
            raise ConfigurationError(
                f"the address {shown} carries {name!r}: set credentials as environment"
                " variables instead"
            )
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
        raise ConfigurationError(f"the address {shown} has an unknown option {name!r}: {hint}")
    return given


def _check_endpoint(endpoint: str, what: str) -> None:
    """Refuse an endpoint that is not the address of a server. A password in it is not repeated."""
    if "@" in endpoint:
        raise ConfigurationError(
            f"{what} carries credentials: take out the part before the '@', and set them as"
            " environment variables instead"
        )
    if _ENDPOINT.fullmatch(endpoint):
        return
    if not endpoint.lower().startswith(("http://", "https://")):
        host = endpoint.partition("://")[2] or endpoint
        raise ConfigurationError(
            f"{what} is {endpoint!r}, without http:// or https://: write http://{host} or"
            f" https://{host}"
        )
    raise ConfigurationError(
        f"{what} is {endpoint!r}, which is not the address of a server: write it as in"
        " http://127.0.0.1:8333"
    )


def check_sendable(config: Mapping[str, str], source: str) -> None:
    """Refuse credentials that no request can carry, without repeating them."""
    for name, value in config.items():
        if not (value.isascii() and value.isprintable()):
            raise ConfigurationError(
                f"the {name} from {source} has a character that is not allowed in a request, such"
                " as a line break: remove it"
            )


def _number(name: str, value: str | None, shown: str) -> float | None:
    if value is None:
        return None
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0.0 < number <= 3600.0 or (name == "threads" and number < 1.0):
        raise ConfigurationError(
            f"the option {name}={value} of {shown} must be a number from 1 to 3600"
        )
    return number
