"""Random instances of any message in any version, from one seed."""

import random
from uuid import UUID

import pytest

from holdfast.protocol.api import ErrorCode
from holdfast.protocol.fields import Field, Primitive

OURS = "holdfast_"
"""How tagged fields begin that only Holdfast has."""
OTHERS = ("kio", "kafka-python")
RANGES = {
    "int8": (-128, 127),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}


class Instances:
    """Fills the fields that a version has; the others keep their defaults."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)
        self.ours_too = not seed.startswith(OTHERS)

    def of(self, cls, version: int):
        values = {
            name: self._field(name, row, version)
            for name, row in cls.FIELDS.items()
            if row.is_in(version) and (self.ours_too or not name.startswith(OURS))
        }
        return cls(**values)

    def _field(self, name: str, row: Field, version: int):
        chance = self.random
        if row.allows_null(version) and chance.random() < 0.3:
            return None
        if row.tag is not None and chance.random() < 0.4:
            return [] if row.kind == "array" and row.default is not None else row.default
        match row.kind:
            case "array":
                count = chance.choice((0, 1, 2, 3, 130 if chance.random() < 0.05 else 1))
                return [self._element(name, row.element, version) for _ in range(count)]
            case "struct":
                value = self.of(row.element, version)
                while row.tag is not None and value == row.element():
                    value = self.of(row.element, version)  # others leave it out at its default
                return value
            case "records":
                return memoryview(bytearray(chance.randbytes(chance.choice((0, 3, 400)))))
            case "record_buffers":
                return (memoryview(chance.randbytes(chance.choice((0, 3, 400)))),)
            case kind:
                return self._value(name, kind)

    def _element(self, name: str, element, version: int):
        if isinstance(element, Primitive):
            return self._value(name, element.kind)
        return self.of(element, version)

    def _value(self, name: str, kind: str):
        chance = self.random
        if kind == "int16" and name.endswith("error_code"):
            return int(chance.choice(list(ErrorCode)))
        if name.endswith("_ms") or "timestamp" in name:
            return chance.randrange(0, 1_000_000) * 1000  # kio keeps whole seconds only
        match kind:
            case "bool":
                return chance.random() < 0.5
            case "float64":
                return chance.uniform(-1e9, 1e9)
            case "uuid":
                return UUID(int=chance.getrandbits(128))
            case "bytes":
                return chance.randbytes(chance.choice((0, 1, 20, 200)))
            case "string":
                return "".join(chance.choices("abcø漢😀.-_9", k=chance.choice((0, 1, 5, 140))))
            case _:
                low, high = RANGES[kind]
                return chance.choice((0, 1, -1 if low < 0 else 2, low, high, 77))


@pytest.fixture
def instances():
    return Instances
