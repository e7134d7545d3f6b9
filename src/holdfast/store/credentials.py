"""The places of a store's credentials, which are read again while the store is in use.

Owns the order of the places, which is that of AWS's own tools: environment variables, a web
identity token, the shared credentials file. The rest (containers, instances, and all of GCS and
Azure) is found by the client library whenever a client is made. Must never show a secret, and never
skip a place that was named but has no keys, because the keys may come back.
"""

import configparser
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.errors import ConfigurationError

KEY_VARIABLES = {
    "AWS_ACCESS_KEY_ID": "access_key_id",
    "AWS_SECRET_ACCESS_KEY": "secret_access_key",
    "AWS_SESSION_TOKEN": "session_token",
}
"""Environment variables, and the client library's names for them."""
FILE_VARIABLE = "AWS_SHARED_CREDENTIALS_FILE"
PROFILE_VARIABLES = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE")
TOKEN_VARIABLES = ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN")


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The credentials that a client is made with."""

    source: str
    """The place they are from, in words for a person."""
    config: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """The keys; empty if the client library finds them by itself."""

    @property
    def are_fixed(self) -> bool:
        """True if a new client made with these would have the same keys."""
        return bool(self.config)


def find_credentials(scheme: str, variables: Mapping[str, str]) -> Credentials:
    """Return the current credentials. Raises ConfigurationError if a named place has none."""
    if scheme != "s3":
        return Credentials(source="the provider's usual places")
    given = {name: variables[name] for name in KEY_VARIABLES if variables.get(name)}
    if given and set(given) != {"AWS_SESSION_TOKEN"}:
        config = {KEY_VARIABLES[name]: value for name, value in given.items()}
        return Credentials(source="the variable AWS_ACCESS_KEY_ID", config=config)
    if all(variables.get(name) for name in TOKEN_VARIABLES):
        return Credentials(source=f"the token in {variables[TOKEN_VARIABLES[0]]}")
    return _in_file(variables) or Credentials(source="the container's or instance's own role")


def _in_file(variables: Mapping[str, str]) -> Credentials | None:
    """Return the credentials of a profile; None if none was named and the default has none."""
    named = next((variables[name] for name in PROFILE_VARIABLES if variables.get(name)), None)
    profile = named or "default"
    path = _path(variables)
    must_be_there = named is not None or bool(variables.get(FILE_VARIABLE))
    if path is None or (not must_be_there and not path.is_file()):
        return None
    parser = configparser.RawConfigParser()
    source = f"profile {profile!r} of {path}"
    try:
        parser.read_string(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{source} cannot be read: {error}") from error
    except configparser.Error as error:
        # The library's message repeats the line, which may be a key.
        raise ConfigurationError(
            f"{source} cannot be read: the file must have [profile] sections with lines"
            " `name = value`"
        ) from error
    names = {f"aws_{name}": name for name in KEY_VARIABLES.values()}
    keys = dict(parser.items(profile)) if parser.has_section(profile) else {}
    config = {names[name]: value for name, value in keys.items() if name in names and value}
    if "access_key_id" in config and "secret_access_key" in config:
        return Credentials(source=source, config=config)
    if not must_be_there:
        return None
    raise ConfigurationError(
        f"{source} has no aws_access_key_id and aws_secret_access_key: add them, or set them as"
        " environment variables (Holdfast does not use role_arn, SSO or credential_process of a"
        " profile)"
    )


def _path(variables: Mapping[str, str]) -> Path | None:
    given, home = variables.get(FILE_VARIABLE), variables.get("HOME")
    if given:
        return Path(home, given[2:]) if home and given.startswith("~/") else Path(given)
    return Path(home, ".aws", "credentials") if home else None
