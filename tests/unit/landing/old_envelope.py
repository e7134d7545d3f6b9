"""The envelope as it was first written, record by record: what the kernels are compared with."""

import base64
from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa


def lines(batch: pa.RecordBatch) -> list[bytes]:
    rows = batch.to_pylist()
    encoder = msgspec.json.Encoder()
    return [encoder.encode(_line(row)) for row in rows]


def _line(row: Mapping[str, Any]) -> dict[str, Any]:
    line: dict[str, Any] = {}
    for name, value in row.items():
        if name == "timestamp":
            line[name] = None if value is None else round(value.timestamp() * 1000)
        elif name == "headers":
            line[name] = [
                _as_text({"key": header["key"]}, "value", header["value"]) for header in value or ()
            ]
        elif isinstance(value, bytes):
            _as_text(line, name, value)
        else:
            line[name] = value
    return line


def _as_text(line: dict[str, Any], name: str, value: bytes | None) -> dict[str, Any]:
    try:
        line[name] = None if value is None else value.decode()
    except UnicodeDecodeError:
        line[f"{name}_base64"] = base64.b64encode(bytes(value or b"")).decode()
    return line
