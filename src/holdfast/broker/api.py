"""The declaration of an API, at the top of its handler's module.

Pure. Owns what can be declared: key, versions, deviations from Kafka, and forwarding. Must never
know a particular API.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from holdfast.protocol.api import ApiKey


@dataclasses.dataclass(frozen=True, slots=True)
class ToController:
    """The request is forwarded to the controller."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ToCoordinator:
    """The request is forwarded to the coordinator of its group. It must be safe to repeat."""

    group_id: Callable[[Any], str | None]
    """Returns the group of a request, or None if it has several: then it is not forwarded."""
    error_codes: Callable[[Any], Iterable[int]]
    """Returns the error codes of a response that may be NOT_COORDINATOR."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """What a handler says about its API. Dispatch, ApiVersions and the reference page read it."""

    key: ApiKey
    versions: range
    deviations: tuple[str, ...] = ()
    """The differences from Kafka, for users: full sentences in Markdown. The page makes a link of
    a decision that is named as `ADR 14`."""
    forward_to: ToController | ToCoordinator | None = None
    """The broker that answers if it is not this one. None: this broker answers, or refuses."""
