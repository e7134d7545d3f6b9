"""Bytes as no honest client would send them, and a socket that sends them.

Owns the building of frames, headers and record batches with any field wrong. Record batches are
laid out here by hand, so that the code under test does not vouch for its own input.
"""

import contextlib
import select
import socket
import struct

from fastcrc.crc32 import iscsi

from holdfast.protocol.message import Message

REPLY_SECONDS_MAX = 60.0
CLIENT_ID = b"hostile"
CORRELATION_ID = 77
CRC_START = 21


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def header(
    key: int,
    version: int,
    *,
    flexible: bool = False,
    client_id: bytes | None = CLIENT_ID,
    correlation_id: int = CORRELATION_ID,
) -> bytes:
    length = -1 if client_id is None else len(client_id)
    fixed = struct.pack(">hhih", key, version, correlation_id, length) + (client_id or b"")
    return fixed + (b"\x00" if flexible else b"")


def request(message: Message, version: int) -> bytes:
    """A well-formed frame around a message whose content may be anything."""
    body = b"".join(map(bytes, message.encode(version)))
    return frame(header(message.API_KEY, version, flexible=message.is_flexible(version)) + body)


def raw(key: int, version: int, body: bytes, *, flexible: bool = False) -> bytes:
    return frame(header(key, version, flexible=flexible) + body)


def varint(value: int) -> bytes:
    """A zigzag varint, as inside records."""
    value = (value << 1) ^ (value >> 63)
    return uvarint(value)


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def record(value: bytes, *, delta: int = 0, key: bytes | None = None, timestamp_delta: int = 0):
    key_part = varint(-1) if key is None else varint(len(key)) + key
    body = b"\x00" + varint(timestamp_delta) + varint(delta) + key_part
    body += varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def batch(
    *values: bytes,
    body: bytes | None = None,
    base_offset: int = 0,
    length: int | None = None,
    leader_epoch: int = -1,
    magic: int = 2,
    crc: int | None = None,
    attributes: int = 0,
    last_offset_delta: int | None = None,
    base_timestamp: int = 1_700_000_000_000,
    max_timestamp: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    count: int | None = None,
    key: bytes | None = None,
) -> bytes:
    """One record batch; what is not given is as it should be."""
    if body is None:
        body = b"".join(record(value, delta=i, key=key) for i, value in enumerate(values))
    count = len(values) if count is None else count
    delta = count - 1 if last_offset_delta is None else last_offset_delta
    newest = base_timestamp if max_timestamp is None else max_timestamp
    covered = struct.pack(
        ">hiqqqhii",
        *(attributes, delta, base_timestamp, newest),
        *(producer_id, producer_epoch, base_sequence, count),
    )
    covered += body
    size = len(covered) + CRC_START - 12 if length is None else length
    checksum = iscsi(covered) if crc is None else crc
    return struct.pack(">qiibI", base_offset, size, leader_epoch, magic, checksum) + covered


class Peer:
    """One connection that sends anything at all."""

    def __init__(self, port: int, *, seconds_max: float = REPLY_SECONDS_MAX) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=seconds_max)

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        """A broker that has closed already is an answer too, and is seen by `reply`."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(data)

    def send_what_fits(self, data: bytes) -> int:
        """As many of the bytes as the connection takes now, after a short wait."""
        if not select.select([], [self._socket], [], 0.05)[1]:
            return 0
        try:
            return self._socket.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0

    def finish(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """End the connection with a RST instead of a FIN."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def has_answer(self) -> bool:
        """Whether something has arrived that was not read yet."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def reply(self) -> bytes | None:
        """The next frame, from its correlation id on; None where the broker closed."""
        head = self._exactly(4)
        return None if head is None else self._exactly(struct.unpack(">i", head)[0])

    def _exactly(self, count: int) -> bytes | None:
        received = bytearray()
        while len(received) < count:
            try:
                part = self._socket.recv(count - len(received))
            except ConnectionResetError:
                return None
            if not part:
                return None
            received += part
        return bytes(received)
