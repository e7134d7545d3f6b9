"""Generates the function that decodes one message in one version.

Pure. Owns the layout of fields in bytes, for reading. The generated function is one flat body with
loops. It makes no call per field or per structure: neighbouring fixed-size fields, and the first
byte of a length that follows them, are read in one `struct` call. Must never emit a slice whose
length was not compared with `end`.
"""

import struct
from typing import Any

from holdfast.protocol.fields import Field, Primitive
from holdfast.protocol.primitives import (
    DECODE_PROBLEMS,
    ELEMENTS_MAX,
    MalformedMessage,
    more_varint,
    read_varint,
    refuse_count,
    refuse_null,
    refuse_short,
    refuse_tag_size,
    refuse_total,
    skip_tagged_fields,
    uuid_of,
)
from holdfast.protocol.source import FORMATS, Source, fixed_size, smallest_element

RUNTIME = {
    "more_varint": more_varint,
    "read_varint": read_varint,
    "skip_tagged_fields": skip_tagged_fields,
    "uuid_of": uuid_of,
    "unpack_from": struct.unpack_from,
    "new": object.__new__,
    "refuse_short": refuse_short,
    "refuse_count": refuse_count,
    "refuse_null": refuse_null,
    "refuse_total": refuse_total,
    "refuse_tag_size": refuse_tag_size,
    "DECODE_PROBLEMS": DECODE_PROBLEMS,
    "MalformedMessage": MalformedMessage,
}


class DecoderSource(Source):
    """The source of `decode(mv, p, end)`, which returns the object and the position after it."""

    def __init__(self, version: int, flexible: bool) -> None:
        super().__init__(version, flexible)
        self.names.update(RUNTIME)
        self._run: list[tuple[str, str]] = []

    def write(self, message: Any) -> str:
        with self.block("try:"):
            self.line("total = 0")
            self._struct(message, "o")
            self.line("return o, p")
        with self.block("except DECODE_PROBLEMS as problem:"):
            place = f"{message.__name__} v{self.version} at byte {{p}} of {{end}}: {{problem}}"
            self.line(f'raise MalformedMessage(f"{place}") from problem')
        return "def decode(mv, p, end):\n" + self.text()

    def _fixed(self, target: str, fmt: str) -> None:
        """Queue a fixed-size field, to be read together with its neighbours."""
        self._run.append((target, fmt))

    def _flush(self) -> None:
        if not self._run:
            return
        formats = "".join(fmt for _, fmt in self._run)
        size = fixed_size(formats)
        targets = [target for target, _ in self._run]
        fmt = self._run[0][1]
        if len(targets) == 1 and fmt == "B":
            self.line(f"{targets[0]} = mv[p]")
        else:
            read = self.constant("U", struct.Struct(">" + formats).unpack_from)
            self.line(f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = {read}(mv, p)")
        self.line(f"p += {size}")
        for target, fmt in self._run:
            if fmt == "16s":
                self.line(f"{target} = uuid_of({target})")
        self._run.clear()

    def _struct(self, struct_type: Any, target: str) -> None:
        self.line(f"{target} = new({self.constant('C', struct_type)})")
        inline, tagged = self.fields(struct_type)
        present = {name for name, _ in inline}
        for name, row in struct_type.FIELDS.items():
            if name not in present:
                self.line(f"{target}.{name} = {self._default(row)}")
        for name, row in inline:
            self._field(name, row, f"{target}.{name}")
        if self.flexible:
            self._tagged(tagged, target)
        self._flush()

    def _default(self, row: Field) -> str:
        if row.kind == "array":
            return "None" if row.default is None else "[]"
        if row.kind == "struct" and row.tag is None and not row.allows_null(self.version):
            return f"{self.constant('C', row.element)}()"
        return "None" if row.default is None else self.constant("D", row.default)

    def _tagged(self, tagged: list[tuple[str, Field]], target: str) -> None:
        count = self.local("n")
        self._fixed(count, "B")
        self._flush()
        if not tagged:
            with self.block(f"if {count}:"):
                self.line(f"p = skip_tagged_fields(mv, p, {count}, end)")
            return
        with self.block(f"if {count} > 127:"):
            self.line(f"{count}, p = more_varint(mv, p, {count})")
        tag, size, stop = self.local("t"), self.local("s"), self.local("q")
        with self.block(f"for _ in range({count}):"):
            self.line(f"{tag}, p = read_varint(mv, p)")
            self.line(f"{size}, p = read_varint(mv, p)")
            self.line(f"{stop} = p + {size}")
            with self.block(f"if {stop} > end:"):
                self.line(f"refuse_short('a tagged field', {size}, end - p)")
            word = "if"
            for name, row in tagged:
                with self.block(f"{word} {tag} == {row.tag}:"):
                    self._field(name, row, f"{target}.{name}")
                    self._flush()
                    with self.block(f"if p != {stop}:"):
                        self.line(f"refuse_tag_size({name!r}, {size})")
                word = "elif"
            with self.block("else:"):
                self.line(f"p = {stop}")

    def _field(self, name: str, row: Field, target: str) -> None:
        null = row.allows_null(self.version)
        match row.kind:
            case kind if kind in FORMATS:
                self._fixed(target, FORMATS[kind])
            case "array":
                self._array(name, row, target, null)
            case "struct":
                self._nested(row, target, null)
            case kind:
                self._sized(name, kind, target, null)

    def _nested(self, row: Field, target: str, null: bool) -> None:
        inner = self.local("o")
        if not null:
            self._struct(row.element, inner)
            self.line(f"{target} = {inner}")
            return
        mark = self.local("n")
        self._fixed(mark, "b")
        self._flush()
        with self.block(f"if {mark} < 0:"):
            self.line(f"{target} = None")
        with self.block("else:"):
            self._struct(row.element, inner)
            self.line(f"{target} = {inner}")

    def _length(self, fmt: str) -> str:
        """Emit the read of a length or count; return the name of its variable (-1 means null)."""
        length = self.local("n")
        if not self.flexible:
            self._fixed(length, fmt)
            self._flush()
            return length
        self._fixed(length, "B")
        self._flush()
        with self.block(f"if {length} > 127:"):
            self.line(f"{length}, p = more_varint(mv, p, {length})")
        self.line(f"{length} -= 1")
        return length

    def _null(self, name: str, length: str, target: str, null: bool) -> None:
        """Open the branch for a negative length; the caller writes the other branch."""
        with self.block(f"if {length} < 0:"):
            if null and self.flexible:
                self.line(f"{target} = None")
            elif null:
                with self.block(f"if {length} != -1:"):
                    self.line(f"refuse_short({name!r}, {length}, end - p)")
                self.line(f"{target} = None")
            else:
                self.line(f"refuse_null({name!r})")

    def _sized(self, name: str, kind: str, target: str, null: bool) -> None:
        length = self._length("h" if kind == "string" else "i")
        self._null(name, length, target, null)
        stop = self.local("q")
        with self.block("else:"):
            self.line(f"{stop} = p + {length}")
            with self.block(f"if {stop} > end:"):
                self.line(f"refuse_short({name!r}, {length}, end - p)")
            match kind:
                case "string":
                    self.line(f"{target} = str(mv[p:{stop}], 'utf-8')")
                case "bytes":
                    self.line(f"{target} = bytes(mv[p:{stop}])")
                case "records":
                    self.line(f"{target} = mv[p:{stop}]")
                case _:
                    self.line(f"{target} = (mv[p:{stop}],)")
            self.line(f"p = {stop}")

    def _array(self, name: str, row: Field, target: str, null: bool) -> None:
        count = self._length("i")
        self._null(name, count, target, null)
        smallest = smallest_element(row, self.version, self.flexible)
        with self.block("else:"):
            with self.block(f"if {count} * {smallest} > end - p:"):
                self.line(f"refuse_count({name!r}, {count}, end - p)")
            numbers = isinstance(row.element, Primitive) and row.element.kind in FORMATS
            self.line(f"total += {count}{' >> 2' if numbers else ''}")
            with self.block(f"if total > {ELEMENTS_MAX}:"):
                self.line("refuse_total()")
            if isinstance(row.element, Primitive):
                self._primitives(name, row.element.kind, count, target)
            else:
                self._structs(row.element, count, target)

    def _primitives(self, name: str, kind: str, count: str, target: str) -> None:
        if kind in FORMATS and kind != "uuid":
            size = fixed_size(FORMATS[kind])
            self.line(f"{target} = list(unpack_from(f'>{{{count}}}{FORMATS[kind]}', mv, p))")
            self.line(f"p += {count} * {size}")
            return
        values, value = self.local("a"), self.local("v")
        self.line(f"{values} = []")
        with self.block(f"for _ in range({count}):"):
            if kind == "uuid":
                self.line(f"{value} = uuid_of(mv[p:p + 16])")
                self.line("p += 16")
            else:
                self._sized(name, kind, value, null=False)
            self.line(f"{values}.append({value})")
        self.line(f"{target} = {values}")

    def _structs(self, element: Any, count: str, target: str) -> None:
        values, value = self.local("a"), self.local("o")
        self.line(f"{values} = []")
        with self.block(f"for _ in range({count}):"):
            self._struct(element, value)
            self.line(f"{values}.append({value})")
        self.line(f"{target} = {values}")
