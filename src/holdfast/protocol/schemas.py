"""Every message that Holdfast knows, by API key.

Owns the table of message classes: each module in `messages` has one request and its response. Must
never decide which versions are served: the broker does.
"""

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from types import ModuleType

from holdfast.errors import InvariantViolation
from holdfast.protocol import messages
from holdfast.protocol.api import ApiKey
from holdfast.protocol.message import Message


def schemas_of(modules: Iterable[ModuleType]) -> dict[ApiKey, tuple[type[Message], type[Message]]]:
    """Return the request class and the response class of each module, in the order of the keys."""
    found: dict[ApiKey, tuple[type[Message], type[Message]]] = {}
    for module in modules:
        request, response = _messages_of(module)
        key = ApiKey(request.API_KEY)
        if key in found:
            other = found[key][0].__module__
            raise InvariantViolation(f"{key.name} has messages in {other} and {module.__name__}")
        found[key] = request, response
    return dict(sorted(found.items()))


def _messages_of(module: ModuleType) -> tuple[type[Message], type[Message]]:
    classes = [
        each
        for each in vars(module).values()
        if isinstance(each, type)
        and issubclass(each, Message)
        and each.__module__ == module.__name__
    ]
    match classes:
        case [request, response] if request.API_KEY == response.API_KEY:
            return request, response
        case _:
            raise InvariantViolation(f"{module.__name__} must have one request, then its response")


SCHEMAS: Mapping[ApiKey, tuple[type[Message], type[Message]]] = schemas_of(
    importlib.import_module(f"{messages.__name__}.{file.name}")
    for file in pkgutil.iter_modules(messages.__path__)
)
"""The request class and the response class of each API."""
