"""The source of a generated function: lines, indentation, names of constants, sizes of fields.

Pure. Owns what decoder and encoder share. Must never be used while a codec runs, only while one is
generated.
"""

import struct
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from holdfast.protocol.fields import Field, Primitive

FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""The `struct` format of each fixed-size type; neighbouring fields share one call."""


class Source:
    """The source of one function while it is being generated."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.names: dict[str, Any] = {}
        self._lines: list[str] = []
        self._depth = 1
        self._count = 0

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, header: str) -> Generator[None]:
        self.line(header)
        self._depth += 1
        yield
        self._depth -= 1

    def local(self, prefix: str) -> str:
        """Return a new local name, which nothing else in the function has."""
        self._count += 1
        return f"{prefix}{self._count}"

    def constant(self, prefix: str, value: object) -> str:
        name = self.local(prefix)
        self.names[name] = value
        return name

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def fields(self, struct_type: Any) -> tuple[list[tuple[str, Field]], list[tuple[str, Field]]]:
        """Return the fields of this version: first the inline ones, then the tagged ones by tag."""
        present = [
            (name, row) for name, row in struct_type.FIELDS.items() if row.is_in(self.version)
        ]
        tagged = [(name, row) for name, row in present if row.tag is not None]
        tagged.sort(key=lambda item: item[1].tag or 0)
        return [item for item in present if item[1].tag is None], tagged


def fixed_size(formats: str) -> int:
    return struct.calcsize(">" + formats)


def smallest_struct(struct_type: Any, version: int, flexible: bool) -> int:
    """Return the fewest bytes that a structure can take, which bounds how many can follow."""
    size = 1 if flexible else 0
    for row in struct_type.FIELDS.values():
        if row.is_in(version) and row.tag is None:
            size += _smallest_field(row, version, flexible)
    return max(size, 1)


def _smallest_field(row: Field, version: int, flexible: bool) -> int:
    if row.kind in FORMATS:
        return fixed_size(FORMATS[row.kind])
    if row.kind == "struct":
        return 1 if row.allows_null(version) else smallest_struct(row.element, version, flexible)
    if flexible:
        return 1
    return 2 if row.kind == "string" else 4


def smallest_element(row: Field, version: int, flexible: bool) -> int:
    if not isinstance(row.element, Primitive):
        return smallest_struct(row.element, version, flexible)
    if row.element.kind in FORMATS:
        return fixed_size(FORMATS[row.element.kind])
    return 1 if flexible else 2
