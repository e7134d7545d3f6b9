"""Batches that grow: small as sent, huge when somebody looks inside.

The broker looks inside for a lookup by time and for a compacted topic. It must answer with an error
and keep its memory. What was not looked into stays in the log, as with any broker, and harms only
those who read that partition; it has a topic of its own here.
"""

import gzip
import struct

import cramjam
from tests.hostile.case import Case, Target, one_of
from tests.hostile.cases.produce import VERSION, produce
from tests.hostile.cases.reads import LIST, list_offsets
from tests.support.hostile_bytes import Peer, batch, request, uvarint

from holdfast.client.wire import decode_response
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.list_offsets import ListOffsetsResponse
from holdfast.protocol.messages.produce import ProduceResponse

GROWN_BYTES = 192 << 20
SNAPPY_GROWN_BYTES = 20 << 20
"""More than the broker opens (16 MiB). Snappy packs zeros to a twentieth, so that much more would
be refused for the size of the batch."""
NEWEST = 1_700_000_500_000
MAX_TIMESTAMP = -3
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
REFUSED = ("INVALID_RECORD", "CORRUPT_MESSAGE", "MESSAGE_TOO_LARGE", "KAFKA_STORAGE_ERROR")


def zeros(codec: int) -> bytes:
    part = bytes(1 << 20)
    match codec:
        case 1:
            # Members one after the other are one stream; one is compressed, all are sent.
            return gzip.compress(part, 9) * (GROWN_BYTES >> 20)
        case 2:
            block = bytes(cramjam.snappy.compress_raw(bytes(SNAPPY_GROWN_BYTES)))
            head = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
            return head + (struct.pack(">i", len(block)) + block)
        case 3:
            return bytes(cramjam.lz4.compress(bytes(GROWN_BYTES)))
        case _:
            return bytes(cramjam.zstd.compress(bytes(GROWN_BYTES), level=1))


def declared_bytes(codec: int) -> bytes:
    """A few bytes that say they are 4 GiB."""
    match codec:
        case 1:
            whole = gzip.compress(b"small")
            return whole[:-4] + b"\xff\xff\xff\xff"
        case 2:
            return uvarint(2**32 - 1) + b"\x00a"
        case 3:
            descriptor = b"\x68\x70" + struct.pack("<Q", 2**62)
            return (
                b"\x04\x22\x4d\x18" + descriptor + b"\x00" + struct.pack("<I", 2**31 - 1) + b"abc"
            )
        case _:
            return b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 2**62) + b"\x01\x00\x00"


NAMES = {GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}


def _looked_into(name: str, codec: int, body) -> Case:
    """Produce to a topic of its own partition, then ask for a time: answered without opening it."""

    def check(peer: Peer, target: Target) -> None:
        made = batch(body=body(codec), count=1, attributes=codec, max_timestamp=NEWEST)
        peer.send(request(produce(made, topic="poisoned", partition=codec), VERSION))
        reply = peer.reply()
        assert reply is not None
        taken = decode_response(reply, ProduceResponse, VERSION).responses[0]
        assert taken.partition_responses[0].error_code == ErrorCode.NONE
        for at in (NEWEST, MAX_TIMESTAMP):
            peer.send(request(list_offsets(at, topic="poisoned", partition=codec), LIST))
            reply = peer.reply()
            assert reply is not None
            told = decode_response(reply, ListOffsetsResponse, LIST).topics[0].partitions[0]
            # A batch that cannot be opened is found by its start: nothing is hidden behind it.
            assert (told.error_code, told.timestamp) == (ErrorCode.NONE, NEWEST), f"{told}"
            assert told.offset >= 0

    return Case(name, check)


CASES = [
    *(
        _looked_into(f"a {name} bomb, asked for by time", codec, zeros)
        for codec, name in NAMES.items()
    ),
    *(
        _looked_into(f"a {name} stream that says 4 GiB, asked for by time", codec, declared_bytes)
        for codec, name in NAMES.items()
    ),
    *(
        _looked_into(f"nonsense under {name}, asked for by time", codec, lambda _: b"\x99" * 200)
        for codec, name in NAMES.items()
    ),
    *(
        one_of(
            f"a {name} {how} for a compacted topic",
            VERSION,
            lambda target, codec=codec, body=body: produce(
                batch(body=body(codec), count=1, attributes=codec), topic="compacted"
            ),
            *REFUSED,
        )
        for codec, name in NAMES.items()
        for how, body in (("bomb", zeros), ("stream that says 4 GiB", declared_bytes))
    ),
]
