"""All APIs that a broker serves, each with its handler, found by walking `broker/handlers`.

Owns the search: each module in a folder of handlers has a declaration `API` and a function
`handle`. Must never know a particular API.
"""

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

from holdfast.broker import handlers
from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.errors import InvariantViolation
from holdfast.protocol.connection import ServedApis
from holdfast.protocol.message import Message
from holdfast.protocol.schemas import SCHEMAS

Handler = Callable[[Broker, Any, RequestContext], Any]
PEERS_FOLDER = "peers"
"""The folder of the APIs between brokers, which ApiVersions does not list."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An API with the code that serves it."""

    api: Api
    handle: Handler
    request: type[Message]
    response: type[Message]
    folder: str
    """The folder of the handler, such as data, groups or peers."""


def endpoints_of(modules: Iterable[tuple[str, ModuleType]]) -> dict[int, Endpoint]:
    """Return the endpoints that modules declare, by API key and in the order of the keys."""
    found: dict[int, Endpoint] = {}
    for folder, module in modules:
        endpoint = _endpoint(folder, module)
        key = endpoint.api.key
        if key in found:
            other = found[key].handle.__module__
            raise InvariantViolation(f"{key.name} is declared by {other} and {module.__name__}")
        found[key] = endpoint
    return dict(sorted(found.items()))


def _handler_modules(package: ModuleType) -> Iterator[tuple[str, ModuleType]]:
    """Import the modules in a package's folders, in the order of their names."""
    for folder in pkgutil.iter_modules(package.__path__):
        inner = importlib.import_module(f"{package.__name__}.{folder.name}")
        for file in pkgutil.iter_modules(inner.__path__):
            yield folder.name, importlib.import_module(f"{inner.__name__}.{file.name}")


def _endpoint(folder: str, module: ModuleType) -> Endpoint:
    api, handle = getattr(module, "API", None), getattr(module, "handle", None)
    if not isinstance(api, Api) or not callable(handle):
        raise InvariantViolation(f"{module.__name__} lacks a declaration API or a function handle")
    if api.key not in SCHEMAS:
        raise InvariantViolation(f"{module.__name__}: {api.key.name} has no messages")
    request, response = SCHEMAS[api.key]
    return Endpoint(api=api, handle=handle, request=request, response=response, folder=folder)


ENDPOINTS: Mapping[int, Endpoint] = endpoints_of(_handler_modules(handlers))
BETWEEN_BROKERS = frozenset(
    endpoint.api.key for endpoint in ENDPOINTS.values() if endpoint.folder == PEERS_FOLDER
)
SERVED = ServedApis(
    {endpoint.api.key: endpoint.api.versions for endpoint in ENDPOINTS.values()},
    unlisted=BETWEEN_BROKERS,
)
