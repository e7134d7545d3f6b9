"""A proxy in front of a broker that refuses a Produce in its place, once the next one has come.

Owns the order in which the two happen: the client has both under way when it hears of the first,
and the broker never saw that one. All else passes through unchanged.
"""

import socket
import threading
from typing import NamedTuple

from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.headers import decode_client_id, decode_request_prefix
from holdfast.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

SECONDS_MAX = 60.0


class _Frame(NamedTuple):
    api_key: int
    version: int
    correlation_id: int
    data: bytes
    """With its length."""


class RefusingProxy:
    """Listens on a port of its own, for clients of the broker that advertises it."""

    def __init__(self, port: int, upstream_port: int) -> None:
        self.is_held = threading.Event()
        """A Produce waits for the next one, to be refused then."""
        self._is_armed = threading.Event()
        self._upstream_port = upstream_port
        self._listening = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._listen, daemon=True).start()

    def refuse_next(self) -> None:
        """The next Produce; nothing else may be under way on its connection."""
        self._is_armed.set()

    def close(self) -> None:
        self._listening.close()

    def _listen(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            upstream = socket.create_connection(("127.0.0.1", self._upstream_port))
            for work in (self._to_broker, self._to_client):
                threading.Thread(target=work, args=(client, upstream), daemon=True).start()

    def _to_client(self, client: socket.socket, upstream: socket.socket) -> None:
        try:
            while data := upstream.recv(1 << 16):
                client.sendall(data)
        except OSError:
            pass
        finally:
            client.close()

    def _to_broker(self, client: socket.socket, upstream: socket.socket) -> None:
        held: _Frame | None = None
        try:
            while frame := read_frame(client):
                is_produce = frame.api_key == ApiKey.PRODUCE
                if is_produce and self._is_armed.is_set():
                    self._is_armed.clear()
                    held = frame
                    self.is_held.set()
                    continue
                if is_produce and held is not None:
                    client.sendall(_refusal(held))
                    held = None
                upstream.sendall(frame.data)
        except OSError:
            pass
        finally:
            upstream.close()


def read_frame(client: socket.socket) -> _Frame | None:
    size = _read_exactly(client, 4)
    rest = _read_exactly(client, int.from_bytes(size, "big")) if size else b""
    return _Frame(*decode_request_prefix(rest), size + rest) if rest else None


def _read_exactly(client: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = client.recv(count - len(data))
        if not more:
            return b""
        data += more
    return data


def _refusal(frame: _Frame) -> bytes:
    """NOT_ENOUGH_REPLICAS for all that the request would write."""
    flexible = frame.version >= ProduceRequest.FLEXIBLE_SINCE
    payload = memoryview(frame.data)[4:]
    _, begins_at = decode_client_id(payload, flexible=flexible)
    request = ProduceRequest.decode(payload[begins_at:], frame.version)
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=part.index, error_code=ErrorCode.NOT_ENOUGH_REPLICAS, base_offset=-1
                    )
                    for part in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )
    body = b"".join(response.encode(frame.version))
    header = frame.correlation_id.to_bytes(4, "big") + (b"\x00" if flexible else b"")
    return (len(header) + len(body)).to_bytes(4, "big") + header + body
