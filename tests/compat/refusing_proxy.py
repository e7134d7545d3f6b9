"""A proxy in front of a broker that refuses a Produce in its place, once the next one has come.

Owns the order in which the two happen: the client has both under way when it hears of the first,
and the broker never saw that one. All else passes through unchanged.
"""

import socket
import threading

from tests.compat.proxy import BrokerProxy, Frame, read_frame

from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.headers import decode_client_id
from holdfast.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

SECONDS_MAX = 60.0


class RefusingProxy(BrokerProxy):
    """It refuses a Produce when it is told to."""

    def __init__(self, port: int, upstream_port: int) -> None:
        self.is_held = threading.Event()
        """A Produce waits for the next one, to be refused then."""
        super().__init__(port, upstream_port)

    def refuse_next(self) -> None:
        """The next Produce; nothing else may be under way on its connection."""
        self._is_armed.set()

    def serve(self, client: socket.socket, upstream: socket.socket) -> None:
        threading.Thread(target=self._to_client, args=(client, upstream), daemon=True).start()
        self._to_broker(client, upstream)

    def _to_client(self, client: socket.socket, upstream: socket.socket) -> None:
        try:
            while data := upstream.recv(1 << 16):
                client.sendall(data)
        except OSError:
            pass
        finally:
            client.close()

    def _to_broker(self, client: socket.socket, upstream: socket.socket) -> None:
        held: Frame | None = None
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


def _refusal(frame: Frame) -> bytes:
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
