"""The types of message fields, and the functions that declare them in a field table.

Pure. Owns the rows of the tables. Must never know a particular message (see messages/), nor how a
row is laid out in bytes (see decoder and encoder).

`since` and `until` bound the versions that carry a field. In other versions the field is left out
when encoded, and has its default when decoded. A field with a `tag` is a tagged field, which is
left out if it has its default.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from uuid import UUID

from holdfast.protocol.primitives import ZERO_UUID, Buffer

T = TypeVar("T")
LAST = 32767


@dataclass(frozen=True, slots=True)
class Primitive(Generic[T]):
    """An element type of arrays that needs no Struct class."""

    kind: str


INT32: Primitive[int] = Primitive("int32")
INT64: Primitive[int] = Primitive("int64")
STRING: Primitive[str] = Primitive("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One row of a field table."""

    kind: str
    element: type[Any] | Primitive[Any] | None = None
    default: object = None
    since: int = 0
    until: int = LAST
    nullable_since: int = LAST + 1
    tag: int | None = None

    def is_in(self, version: int) -> bool:
        return self.since <= version <= self.until

    def allows_null(self, version: int) -> bool:
        return version >= self.nullable_since


def _field(kind: str, **row: Any) -> Any:
    return Field(kind=kind, **row)


def boolean(
    *, default: bool = False, since: int = 0, until: int = LAST, tag: int | None = None
) -> bool:
    return _field("bool", default=default, since=since, until=until, tag=tag)


def int8(*, default: int = 0, since: int = 0, until: int = LAST, tag: int | None = None) -> int:
    return _field("int8", default=default, since=since, until=until, tag=tag)


def int16(*, default: int = 0, since: int = 0, until: int = LAST, tag: int | None = None) -> int:
    return _field("int16", default=default, since=since, until=until, tag=tag)


def uint16(*, default: int = 0, since: int = 0, until: int = LAST, tag: int | None = None) -> int:
    return _field("uint16", default=default, since=since, until=until, tag=tag)


def int32(*, default: int = 0, since: int = 0, until: int = LAST, tag: int | None = None) -> int:
    return _field("int32", default=default, since=since, until=until, tag=tag)


def int64(*, default: int = 0, since: int = 0, until: int = LAST, tag: int | None = None) -> int:
    return _field("int64", default=default, since=since, until=until, tag=tag)


def float64(
    *, default: float = 0.0, since: int = 0, until: int = LAST, tag: int | None = None
) -> float:
    return _field("float64", default=default, since=since, until=until, tag=tag)


def uuid(*, since: int = 0, until: int = LAST, tag: int | None = None) -> UUID:
    return _field("uuid", default=ZERO_UUID, since=since, until=until, tag=tag)


def string(*, default: str = "", since: int = 0, until: int = LAST, tag: int | None = None) -> str:
    return _field("string", default=default, since=since, until=until, tag=tag)


def nullable_string(
    *,
    default: str | None = None,
    since: int = 0,
    until: int = LAST,
    nullable_since: int = 0,
    tag: int | None = None,
) -> str | None:
    return _field(
        "string", default=default, since=since, until=until, nullable_since=nullable_since, tag=tag
    )


def octets(*, since: int = 0, until: int = LAST, tag: int | None = None) -> bytes:
    """Declare Kafka's `bytes`: copied out of the frame, for values that are kept."""
    return _field("bytes", default=b"", since=since, until=until, tag=tag)


def records(*, since: int = 0, until: int = LAST) -> memoryview | None:
    """Declare record batches as one slice of the frame, not copied; writable if the frame is."""
    return _field("records", since=since, until=until, nullable_since=0)


def record_buffers(*, since: int = 0, until: int = LAST) -> Sequence[Buffer] | None:
    """Declare record batches as buffers that are never joined; they are decoded as one slice."""
    return _field("record_buffers", since=since, until=until, nullable_since=0)


def array(
    element: type[T] | Primitive[T], *, since: int = 0, until: int = LAST, tag: int | None = None
) -> list[T]:
    return _field("array", element=element, default=[], since=since, until=until, tag=tag)


def nullable_array(
    element: type[T] | Primitive[T],
    *,
    default: list[T] | None = None,
    since: int = 0,
    until: int = LAST,
    nullable_since: int = 0,
    tag: int | None = None,
) -> list[T] | None:
    return _field(
        "array",
        element=element,
        default=default,
        since=since,
        until=until,
        nullable_since=nullable_since,
        tag=tag,
    )


def nested(element: type[T], *, since: int = 0, until: int = LAST) -> T:
    """Declare an inline structure; its default is a structure with all defaults."""
    return _field("struct", element=element, since=since, until=until)


def nullable_nested(
    element: type[T],
    *,
    since: int = 0,
    until: int = LAST,
    tag: int | None = None,
) -> T | None:
    """Declare a structure that may be missing: null if inline, left out if it is a tagged field."""
    return _field(
        "struct",
        element=element,
        since=since,
        until=until,
        nullable_since=0 if tag is None else LAST + 1,
        tag=tag,
    )
