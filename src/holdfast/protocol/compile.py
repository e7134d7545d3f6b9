"""Compiles field tables into decoders, encoders and constructors.

Pure. Each function is generated as source and compiled once; the message class keeps it. This is
the only module that executes generated source. Must never be given text that came over the network:
its input is our own field tables.
"""

from collections.abc import Callable, Generator, Mapping
from typing import Any

from holdfast.protocol.decoder import DecoderSource
from holdfast.protocol.encoder import EncoderSource
from holdfast.protocol.fields import Field
from holdfast.protocol.primitives import Buffer

Decoder = Callable[[memoryview, int, int], tuple[object, int]]
Encoder = Callable[[object], list[Buffer]]
SliceEncoder = Callable[[object], Generator[None, None, list[Buffer]]]


def decoder(message: Any, version: int, flexible: bool) -> Decoder:
    source = DecoderSource(version, flexible)
    return _function("decode", source.write(message), source.names)


def encoder(message: Any, version: int, flexible: bool) -> Encoder:
    source = EncoderSource(version, flexible)
    return _function("encode", source.write(message), source.names)


def slice_encoder(message: Any, version: int, flexible: bool) -> SliceEncoder:
    source = EncoderSource(version, flexible, in_slices=True)
    return _function("encode", source.write(message), source.names)


def constructor(fields: Mapping[str, Field]) -> Callable[..., None]:
    """Return an __init__ with keyword arguments; default lists and structures are never shared."""
    names: dict[str, Any] = {"MISSING": object()}
    parameters: list[str] = []
    body: list[str] = []
    for name, row in fields.items():
        names[f"default_{name}"] = row.default
        names[f"element_{name}"] = row.element
        is_new_struct = row.kind == "struct" and row.tag is None and row.nullable_since > 0
        if row.default == [] or is_new_struct:
            fresh = "[]" if row.default == [] else f"element_{name}()"
            parameters.append(f"{name}=MISSING")
            body.append(f"    self.{name} = {fresh} if {name} is MISSING else {name}")
        else:
            parameters.append(f"{name}=default_{name}")
            body.append(f"    self.{name} = {name}")
    text = f"def __init__(self, *, {', '.join(parameters)}):\n" + "\n".join(body) + "\n"
    return _function("__init__", text, names)


def _function(name: str, text: str, names: dict[str, Any]) -> Callable[..., Any]:
    exec(compile(text, f"<generated {name}>", "exec"), names)
    return names[name]
