"""Request headers: keys and versions that nobody serves, client ids, tagged fields."""

import struct

from tests.hostile.case import Case, Target, closed
from tests.support.hostile_bytes import Peer, frame, header, raw, request

from holdfast.client.wire import decode_response
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from holdfast.protocol.messages.metadata import MetadataRequest
from holdfast.protocol.schemas import SCHEMAS

BODY = b"".join(map(bytes, MetadataRequest(topics=[]).encode(4)))
FLEXIBLE_BODY = b"".join(map(bytes, MetadataRequest(topics=[]).encode(9)))


def _unsupported_api_versions(version: int) -> Case:
    def check(peer: Peer, target: Target) -> None:
        peer.send(raw(ApiKey.API_VERSIONS, version, b"", flexible=True))
        reply = peer.reply()
        assert reply is not None
        told = decode_response(reply, ApiVersionsResponse, 0)
        assert told.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert ApiKey.API_VERSIONS in {row.api_key for row in told.api_keys}
        peer.send(request(ApiVersionsRequest(), 0))
        assert peer.reply() is not None

    return Case(f"ApiVersions v{version}", check)


def _answered(name: str, data: bytes) -> Case:
    def check(peer: Peer, target: Target) -> None:
        peer.send(data)
        assert peer.reply() is not None

    return Case(name, check)


def _tagged(tags: bytes) -> bytes:
    return frame(header(ApiKey.METADATA, 9) + tags + FLEXIBLE_BODY)


CASES = [
    *(
        closed(f"the api key {key}", raw(key, 0, b""))
        for key in (-1, -32768, 4, 5, 6, 7, 999, 32767)
    ),
    *(
        closed(
            f"{key.name} v{SCHEMAS[key][0].VERSIONS.stop + 50}", raw(key, 100, b"", flexible=True)
        )
        for key in (
            ApiKey.PRODUCE,
            ApiKey.FETCH,
            ApiKey.LIST_OFFSETS,
            ApiKey.METADATA,
            ApiKey.CREATE_TOPICS,
            ApiKey.DELETE_RECORDS,
            ApiKey.INIT_PRODUCER_ID,
            ApiKey.DESCRIBE_CONFIGS,
        )
    ),
    *(closed(f"Produce v{v}, no longer served", raw(ApiKey.PRODUCE, v, b"")) for v in (-1, 0, 2)),
    *(closed(f"Fetch v{v}, no longer served", raw(ApiKey.FETCH, v, b"")) for v in (-1, 0, 3)),
    *(_unsupported_api_versions(version) for version in (5, 99, 999, 32767)),
    _answered("a null client id", frame(header(ApiKey.METADATA, 4, client_id=None) + BODY)),
    _answered("an empty client id", frame(header(ApiKey.METADATA, 4, client_id=b"") + BODY)),
    _answered(
        "a client id of 32 KiB", frame(header(ApiKey.METADATA, 4, client_id=b"x" * 32767) + BODY)
    ),
    _answered(
        "a client id that is not UTF-8",
        frame(header(ApiKey.METADATA, 4, client_id=b"\xff\xfe\x80") + BODY),
    ),
    _answered(
        "a client id with a newline and a NUL",
        frame(header(ApiKey.METADATA, 4, client_id=b"a\n\x00{}%s") + BODY),
    ),
    _answered(
        "the lowest correlation id",
        frame(header(ApiKey.METADATA, 4, correlation_id=-(2**31)) + BODY),
    ),
    *(
        closed(
            f"a client id of length {length}",
            frame(struct.pack(">hhih", ApiKey.METADATA, 4, 1, length) + b"abc"),
        )
        for length in (-2, -32768, 4, 32767)
    ),
    closed("a header that ends before its client id", frame(struct.pack(">hhi", 3, 4, 1))),
    closed("a header that ends before its tags", frame(header(ApiKey.METADATA, 9))),
    _answered("an unknown tagged field", _tagged(b"\x01\x63\x03abc")),
    closed("a tagged field past the end", _tagged(b"\x01\x63\xff\xff\x03abc")),
    closed("more tagged fields than bytes", _tagged(b"\xff\xff\xff\xff\x07")),
    closed("an endless varint for the tags", _tagged(b"\xff" * 12)),
]
