"""Records as lines of text: what `holdfast topic produce` reads, and what `consume` prints.

Pure. Owns both forms. Text is the value, after the parts that the options ask for, in the order and
with the words of Kafka's console consumer. JSON is one object per record, with the members of the
sink's envelope. `produce --format json` reads what `consume --json` prints.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import msgspec

from holdfast.errors import NOT_JSON, ConfigurationError
from holdfast.json_bytes import member, put_member
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.records.record import HEADER_KEY_ERRORS, Record

Headers = tuple[tuple[str, bytes | None], ...]

MEMBERS = ("key", "value", "headers", "timestamp", "partition")
"""Members of a JSON line that describe the record to produce."""
IGNORED = ("topic", "offset", "timestampType")
"""Members of a consumed record that `produce` accepts and ignores: the log decides them."""
ESCAPES = {"\\t": "\t", "\\n": "\n", "\\0": "\0", "\\\\": "\\"}
NULL = b"null"


class Draft(NamedTuple):
    """The parts of a record to produce that its line gives."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int | None = None
    partition: int | None = None


class Shown(NamedTuple):
    """The parts of a record to print before the value, and the text between them."""

    key: bool = False
    partition: bool = False
    offset: bool = False
    timestamp: bool = False
    headers: bool = False
    separator: bytes = b"\t"


def separator_bytes(text: str) -> bytes:
    """Encode a separator as a shell can write it: a tab is a tab, or the two letters `\\t`."""
    for written, meant in ESCAPES.items():
        text = text.replace(written, meant)
    return text.encode()


def parse_text(line: bytes, separator: bytes | None) -> Draft:
    """Parse a line as a value or, with a separator, as a key and a value around the first one."""
    if separator is None:
        return Draft(None, line)
    key, found, value = line.partition(separator)
    if not found:
        raise ConfigurationError(
            f"it has no separator {separator.decode(errors='replace')!r} between key and value:"
            " write KEY, the separator and VALUE, or leave --key-separator out"
        )
    return Draft(key, value)


def parse_json(line: bytes) -> Draft:
    """Parse one JSON object. A value that is not a string stays JSON; null is a tombstone."""
    try:
        found = msgspec.json.decode(line)
    except NOT_JSON as wrong:
        raise ConfigurationError(
            f'it is not JSON ({wrong}): write {{"key": "k", "value": "v"}}'
        ) from None
    if not isinstance(found, dict):
        raise ConfigurationError('it is no JSON object: write {"key": "k", "value": "v"}')
    members = cast("dict[str, Any]", found)
    known = {*MEMBERS, *IGNORED, "key_base64", "value_base64"}
    for name in members:
        if name not in known:
            raise ConfigurationError(
                f"unknown member {name!r}: there are {', '.join(MEMBERS)}, and key_base64 and"
                " value_base64 for bytes that are no text"
            )
    if "value" not in members and "value_base64" not in members:
        raise ConfigurationError('it has no "value": write null for a tombstone')
    return Draft(
        _bytes(members, "key"),
        _bytes(members, "value"),
        _headers(members.get("headers")),
        _number(members, "timestamp"),
        _number(members, "partition"),
    )


def _bytes(members: Mapping[str, Any], name: str) -> bytes | None:
    try:
        return member(members, name)
    except (ValueError, TypeError):
        encoded = members[f"{name}_base64"]
        raise ConfigurationError(f"{name}_base64 is not base64: {encoded!r}") from None


def _headers(given: object) -> Headers:
    """Parse a list of objects with key and value, or one object of names and values."""
    if given is None:
        return ()
    if isinstance(given, dict):
        names = cast("dict[str, Any]", given)
        return tuple((name, _bytes({"value": value}, "value")) for name, value in names.items())
    try:
        rows = msgspec.convert(given, list[dict[str, Any]])
        return tuple((msgspec.convert(row["key"], str), _bytes(row, "value")) for row in rows)
    except (msgspec.ValidationError, KeyError):
        raise ConfigurationError(
            'headers must be {"name": "value"}, or a list of {"key": "name", "value": "value"}'
        ) from None


def _number(members: Mapping[str, Any], name: str) -> int | None:
    given = members.get(name)
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise ConfigurationError(f"{name} must be a whole number from 0 on, not {given!r}")
    return given


def text_line(where: TopicPartition, record: Record, shown: Shown) -> bytes:
    """Return one record as text, as Kafka's console consumer prints it."""
    parts: list[bytes] = []
    if shown.timestamp:
        parts.append(b"CreateTime:%d" % record.timestamp)
    if shown.partition:
        parts.append(b"Partition:%d" % where.partition)
    if shown.offset:
        parts.append(b"Offset:%d" % record.offset)
    if shown.headers:
        pairs = (_name(name) + b":" + _shown(value) for name, value in record.headers)
        parts.append(b",".join(pairs) if record.headers else b"NO_HEADERS")
    if shown.key:
        parts.append(_shown(record.key))
    return shown.separator.join([*parts, _shown(record.value)]) + b"\n"


def _name(text: str) -> bytes:
    return text.encode("utf-8", HEADER_KEY_ERRORS)


def _shown(value: bytes | None) -> bytes:
    return NULL if value is None else value


def json_line(where: TopicPartition, record: Record) -> bytes:
    """Return one record as a line of JSON."""
    line: dict[str, Any] = {}
    put_member(line, "key", record.key)
    put_member(line, "value", record.value)
    line |= {
        "topic": where.topic,
        "partition": where.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    line["headers"] = [
        put_member({"key": _name(name).decode(errors="replace")}, "value", value)
        for name, value in record.headers
    ]
    return msgspec.json.encode(line) + b"\n"
