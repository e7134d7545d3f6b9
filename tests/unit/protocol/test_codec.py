"""Every message in every version: through ourselves, and byte by byte against two other codecs."""

import importlib
import io
import re

import pytest
from kio.serial import entity_reader, entity_writer

from holdfast.protocol.schemas import SCHEMAS

ROUNDS = 12
AUTHORIZED = ("topic_authorized_operations", "cluster_authorized_operations")
OURS_SINCE = 10_000
CASES = [
    pytest.param(message, version, id=f"{message.__name__}-v{version}")
    for pair in SCHEMAS.values()
    for message in pair
    for version in message.VERSIONS
]


def snake(name: str) -> str:
    name = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name).lower()


def kio_class(message, version: int):
    side = "request" if message.__name__.endswith("Request") else "response"
    api = snake(message.__name__.removesuffix("Request").removesuffix("Response"))
    module = importlib.import_module(f"kio.schema.{api}.v{version}.{side}")
    return getattr(module, message.__name__)


def kafka_python_class(message):
    for package in ("admin", "consumer", "metadata", "producer", "sasl"):
        module = importlib.import_module(f"kafka.protocol.{package}")
        if hasattr(module, message.__name__):
            return getattr(module, message.__name__)
    return None


@pytest.mark.parametrize(("message", "version"), CASES)
def test_a_message_survives_encoding_and_decoding(message, version, instances):
    source = instances(f"{message.__name__} {version}")
    for _ in range(ROUNDS):
        original = source.of(message, version)
        raw = b"".join(original.encode(version))
        assert message.decode(raw, version, exact=True) == original
        assert b"".join(in_slices(original, version)) == raw


def in_slices(message, version: int):
    """What a message that is encoded in slices comes to."""
    slices = message.encode_in_slices(version)
    while True:
        try:
            next(slices)
        except StopIteration as done:
            return done.value


@pytest.mark.parametrize(("message", "version"), CASES)
def test_kio_reads_the_same_fields_and_writes_the_same_bytes(message, version, instances):
    if message.API_KEY >= OURS_SINCE:
        pytest.skip("a message of ours alone")
    theirs = kio_class(message, version)
    read, write = entity_reader(theirs), entity_writer(theirs)
    source = instances(f"kio {message.__name__} {version}")
    for _ in range(ROUNDS):
        raw = b"".join(source.of(message, version).encode(version))
        value, size = read(raw, 0)
        assert size == len(raw)
        again = io.BytesIO()
        write(again, value)
        assert again.getvalue() == raw


@pytest.mark.parametrize(("message", "version"), CASES)
def test_kafka_python_reads_and_writes_the_same_bytes(message, version, instances):
    theirs = kafka_python_class(message)
    if theirs is None:
        pytest.skip("kafka-python does not have this message")
    if message.__name__ == "ApiVersionsResponse":
        pytest.skip("kafka-python reads this one as version 0 first, whatever it was told")
    source = instances(f"kafka-python {message.__name__} {version}")
    for _ in range(ROUNDS):
        raw = b"".join(source.of(message, version).encode(version))
        value = theirs.decode(raw, version=version)
        value._header = None  # its encode looks for a header that its decode did not set
        assert bytes(value.encode(version=version)) == raw


def bounds(text: str, last: int) -> tuple[int, int]:
    first, dash, upper = text.partition("-")
    if first.endswith("+"):
        return int(first[:-1]), last
    return int(first), int(upper) if dash else int(first)


def their_rows(fields, common, valid, outer):
    """A flat reading of a schema: (path, type, first version, last version, null since, tag)."""
    for row in fields:
        if row["versions"] == "none":
            continue
        since, until = bounds(row["versions"], valid[1])
        since, until = max(since, outer[0]), min(until, outer[1])
        if since > until:
            continue
        nullable = row.get("nullableVersions", "none")
        null_since = None if nullable == "none" else max(bounds(nullable, valid[1])[0], since)
        if null_since is not None and null_since > until:
            null_since = None
        kind = row["type"].removeprefix("[]")
        listed = row["type"].startswith("[]")
        inner = row.get("fields") or common.get(kind)
        name = snake(row["name"]).replace("enable2_pc", "enable_2pc")
        kind = "int32" if kind == "bitfield" else kind  # its own name for authorized operations
        shown = ("array of " if listed else "") + ("struct" if inner else kind)
        yield name, shown, since, until, null_since, row.get("tag")
        if inner:
            yield from their_rows(inner, common, valid, (since, until))


def our_rows(struct, outer):
    for name, row in struct.FIELDS.items():
        if name.startswith("holdfast_"):
            continue  # a tagged field of our own
        since, until = max(row.since, outer[0]), min(row.until, outer[1])
        null_since = max(row.nullable_since, since) if row.nullable_since <= until else None
        inner = getattr(row.element, "FIELDS", None)
        kind = "struct" if inner else getattr(row.element, "kind", row.kind)
        kind = "records" if kind == "record_buffers" else kind
        yield (
            name,
            ("array of " if row.kind == "array" else "") + kind,
            since,
            until,
            null_since,
            row.tag,
        )
        if inner:
            yield from our_rows(row.element, (since, until))


def renamed(row):
    """kafka-python drops the first word of topic_ and cluster_authorized_operations."""
    name, *rest = row
    return "authorized_operations" if name in AUTHORIZED else name, *rest


@pytest.mark.parametrize("message", [m for pair in SCHEMAS.values() for m in pair])
def test_the_field_table_says_what_kafkas_own_schema_says(message):
    theirs = kafka_python_class(message)
    if theirs is None:
        pytest.skip("kafka-python does not have this message")
    schema = theirs._json
    last = message.VERSIONS[-1]
    valid = (message.VERSIONS[0], min(last, bounds(schema["validVersions"], last)[1]))
    assert valid[1] == last
    common = {entry["name"]: entry["fields"] for entry in schema.get("commonStructs", [])}
    ours = list(our_rows(message, valid))
    theirs_flat = list(their_rows(schema["fields"], common, valid, valid))
    assert [renamed(row) for row in ours] == [renamed(row) for row in theirs_flat]
    flexible = schema["flexibleVersions"]
    assert (
        32767 if flexible == "none" else int(flexible.removesuffix("+"))
    ) == message.FLEXIBLE_SINCE
