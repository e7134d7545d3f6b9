"""Bytes in JSON: text where they are UTF-8, and base64 where they are not.

Pure. Owns the three forms, which differ because their places do. A *member* of an object that has
our names is `name` or `name_base64`: in the envelope, and in the lines of `topic consume --json`. A
*marked* value, `{"$base64": ...}`, stands inside rows whose columns users name, where the second
name could be taken. A *wrapped* line, `{"$holdfast":"base64","value":...}`, stands where a line is
nothing but a value. Must never change: files that users keep have all three.
"""

import base64
from collections.abc import Mapping
from typing import Any

import msgspec

WRAP_START = b'{"$holdfast"'


def put_member(members: dict[str, Any], name: str, value: bytes | None) -> dict[str, Any]:
    """Put a value into an object, and return the object."""
    try:
        members[name] = None if value is None else value.decode()
    except UnicodeDecodeError:
        members[f"{name}_base64"] = base64_text(value or b"")
    return members


def member(members: Mapping[str, Any], name: str) -> bytes | None:
    """Return the value that an object has by a name. A value that is not a string stays JSON.

    Raise ValueError or TypeError for wrong base64.
    """
    encoded = members.get(f"{name}_base64")
    if encoded is not None:
        return base64.b64decode(encoded, validate=True)
    given = members.get(name)
    if given is None or isinstance(given, str):
        return None if given is None else given.encode()
    return msgspec.json.encode(given)


def marked(value: bytes) -> str | dict[str, str]:
    """Return a value to stand anywhere inside a row."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"$base64": base64_text(value)}


def wrapped(value: bytes | None) -> bytes:
    """Return a line that stands for a value which cannot be a line."""
    encoded = None if value is None else base64_text(value)
    return WRAP_START + b':"base64","value":' + msgspec.json.encode(encoded) + b"}"


def unwrapped(line: bytes) -> bytes | None:
    """Return the value of a line, which may be wrapped."""
    if not line.startswith(WRAP_START):
        return line
    encoded = msgspec.json.decode(line)["value"]
    return None if encoded is None else base64.b64decode(encoded)


def base64_text(value: bytes | memoryview) -> str:
    return base64.b64encode(value).decode()
