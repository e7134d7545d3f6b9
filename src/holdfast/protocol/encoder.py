"""Generates the function that encodes one message in one version.

Pure. Owns the layout of fields in bytes, for writing. Small fields are gathered in bytearrays; the
buffers of record batches are passed through. Must never copy a record batch.
"""

import struct
from typing import Any

from holdfast.protocol.fields import Field, Primitive
from holdfast.protocol.primitives import (
    ENCODE_PROBLEMS,
    UnencodableMessage,
    refuse_null,
    write_varint,
)
from holdfast.protocol.source import FORMATS, Source

SLICE_ELEMENTS = 1_000
"""The number of elements in a slice. A ListGroups response of 100,000 groups takes 75 ms to encode
on a busy machine, and all other clients would wait. A slice takes less than 1 ms."""
RUNTIME = {
    "write_varint": write_varint,
    "refuse_null": refuse_null,
    "pack": struct.pack,
    "ENCODE_PROBLEMS": ENCODE_PROBLEMS,
    "UnencodableMessage": UnencodableMessage,
}


class EncoderSource(Source):
    """The source of `encode(o)`, which returns the list of buffers.

    With `in_slices` the function is a generator, which yields after each slice of elements of the
    message's own arrays and then returns the list.
    """

    def __init__(self, version: int, flexible: bool, *, in_slices: bool = False) -> None:
        super().__init__(version, flexible)
        self._in_slices = in_slices
        self.names.update(RUNTIME)
        self._run: list[tuple[str, str]] = []

    def write(self, message: Any) -> str:
        with self.block("try:"):
            if self._in_slices:
                self.line("yield")
            self.line("parts = []")
            self.line("out = bytearray()")
            self._struct(message, "o")
            with self.block("if out:"):
                self.line("parts.append(out)")
            self.line("return parts")
        with self.block("except ENCODE_PROBLEMS as problem:"):
            place = f"{message.__name__} v{self.version} cannot be encoded: {{problem}}"
            self.line(f'raise UnencodableMessage(f"{place}") from problem')
        return "def encode(o):\n" + self.text()

    def _fixed(self, value: str, fmt: str) -> None:
        """Queue a fixed-size field, to be written together with its neighbours."""
        self._run.append((value, fmt))

    def _flush(self) -> None:
        if not self._run:
            return
        values = ", ".join(value for value, _ in self._run)
        if [fmt for _, fmt in self._run] == ["B"]:
            self.line(f"out.append({values})")
        else:
            write = self.constant("P", struct.Struct(">" + "".join(f for _, f in self._run)).pack)
            self.line(f"out += {write}({values})")
        self._run.clear()

    def _struct(self, struct_type: Any, value: str) -> None:
        inline, tagged = self.fields(struct_type)
        for name, row in inline:
            self._field(name, row, f"{value}.{name}")
        if self.flexible and tagged:
            self._tagged(tagged, value)
        elif self.flexible:
            self._fixed("0", "B")
        self._flush()

    def _tagged(self, tagged: list[tuple[str, Field]], value: str) -> None:
        count = self.local("n")
        self._flush()
        self.line(f"{count} = 0")
        for name, row in tagged:
            with self.block(f"if {self._is_set(row, f'{value}.{name}')}:"):
                self.line(f"{count} += 1")
        self.line(f"write_varint(out, {count})")
        with self.block(f"if {count}:"):
            for name, row in tagged:
                self._tagged_field(name, row, f"{value}.{name}")

    def _is_set(self, row: Field, value: str) -> str:
        if row.default is None:
            return f"{value} is not None"
        return f"{value} != {self.constant('D', row.default)}"

    def _tagged_field(self, name: str, row: Field, value: str) -> None:
        outer = self.local("w")
        with self.block(f"if {self._is_set(row, value)}:"):
            self.line(f"{outer} = out")
            self.line("out = bytearray()")
            self._field(name, row, value)
            self._flush()
            self.line(f"write_varint({outer}, {row.tag})")
            self.line(f"write_varint({outer}, len(out))")
            self.line(f"{outer} += out")
            self.line(f"out = {outer}")

    def _field(self, name: str, row: Field, value: str) -> None:
        null = row.allows_null(self.version)
        match row.kind:
            case "uuid":
                self._fixed(f"{value}.bytes", "16s")
            case kind if kind in FORMATS:
                self._fixed(value, FORMATS[kind])
            case "array":
                self._array(name, row, value, null)
            case "struct":
                self._nested(row, value, null)
            case "records" | "record_buffers":
                self._records(row.kind, value)
            case kind:
                self._sized(name, kind, value, null)

    def _nested(self, row: Field, value: str, null: bool) -> None:
        inner = self.local("o")
        self.line(f"{inner} = {value}")
        if not null:
            self._struct(row.element, inner)
            return
        self._flush()
        with self.block(f"if {inner} is None:"):
            self.line("out.append(255)")
        with self.block("else:"):
            self.line("out.append(1)")
            self._struct(row.element, inner)

    def _length(self, value: str, fmt: str) -> None:
        if not self.flexible:
            self._fixed(value, fmt)
            return
        self._flush()
        length = self.local("n")
        self.line(f"{length} = {value} + 1")
        with self.block(f"if {length} < 128:"):
            self.line(f"out.append({length})")
        with self.block("else:"):
            self.line(f"write_varint(out, {length})")

    def _null(self, name: str, value: str, fmt: str, null: bool) -> None:
        """Open the branch for None; the caller writes the other branch."""
        self._flush()
        with self.block(f"if {value} is None:"):
            if not null:
                self.line(f"refuse_null({name!r})")
            elif self.flexible:
                self.line("out.append(0)")
            else:
                self._fixed("-1", fmt)
                self._flush()

    def _sized(self, name: str, kind: str, value: str, null: bool) -> None:
        fmt = "h" if kind == "string" else "i"
        raw = self.local("b")
        as_bytes = f"{value}.encode()" if kind == "string" else value
        if not null:
            self.line(f"{raw} = {as_bytes}")
            self._length(f"len({raw})", fmt)
            self._flush()
            self.line(f"out += {raw}")
            return
        self._null(name, value, fmt, null)
        with self.block("else:"):
            self.line(f"{raw} = {as_bytes}")
            self._length(f"len({raw})", fmt)
            self._flush()
            self.line(f"out += {raw}")

    def _records(self, kind: str, value: str) -> None:
        buffers, size = self.local("r"), self.local("z")
        self._null("records", value, "i", null=True)
        with self.block("else:"):
            self.line(f"{buffers} = {value}")
            if kind == "records":
                self.line(f"{size} = len({buffers})")
            else:
                self.line(f"{size} = 0")
                with self.block(f"for piece in {buffers}:"):
                    self.line(f"{size} += len(piece)")
            self._length(size, "i")
            self._flush()
            with self.block(f"if {size}:"):
                self.line("parts.append(out)")
                one = kind == "records"
                self.line(f"parts.{'append' if one else 'extend'}({buffers})")
                self.line("out = bytearray()")

    def _array(self, name: str, row: Field, value: str, null: bool) -> None:
        values = self.local("a")
        self._flush()
        self.line(f"{values} = {value}")
        if null:
            self._null(name, values, "i", null)
            with self.block("else:"):
                self._elements(name, row, values)
        else:
            self._elements(name, row, values)

    def _elements(self, name: str, row: Field, values: str) -> None:
        self._length(f"len({values})", "i")
        self._flush()
        element = row.element
        if isinstance(element, Primitive) and element.kind in FORMATS and element.kind != "uuid":
            fmt = FORMATS[element.kind]
            self.line(f"out += pack(f'>{{len({values})}}{fmt}', *{values})")
            return
        item = self.local("o")
        is_sliced, self._in_slices = self._in_slices, False  # arrays inside are not sliced again
        number = self.local("i")
        each = f"{number}, {item} in enumerate({values}, 1)" if is_sliced else f"{item} in {values}"
        with self.block(f"for {each}:"):
            if is_sliced:
                with self.block(f"if not {number} % {SLICE_ELEMENTS}:"):
                    self.line("yield")
            if not isinstance(element, Primitive):
                self._struct(element, item)
            elif element.kind == "uuid":
                self.line(f"out += {item}.bytes")
            else:
                self._sized(name, element.kind, item, null=False)
        self._in_slices = is_sliced
