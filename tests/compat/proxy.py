"""A proxy in front of a broker that lets a test meddle with single requests and answers.

Owns the sockets: a port for the clients, and a connection to the broker for each of theirs.
"""

import socket
import threading
from typing import NamedTuple

from holdfast.protocol.headers import decode_request_prefix


class Frame(NamedTuple):
    """One whole request."""

    api_key: int
    version: int
    correlation_id: int
    data: bytes
    """With its length."""


class BrokerProxy:
    """Listens on a port of its own, for clients of the broker that advertises it."""

    def __init__(self, port: int, upstream_port: int) -> None:
        self._is_armed = threading.Event()
        self._upstream_port = upstream_port
        self._listening = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def serve(self, client: socket.socket, upstream: socket.socket) -> None:
        """Carry what one client and the broker say, until one of them has closed."""
        raise NotImplementedError

    def _listen(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            upstream = socket.create_connection(("127.0.0.1", self._upstream_port))
            threading.Thread(target=self.serve, args=(client, upstream), daemon=True).start()


def read_frame(client: socket.socket) -> Frame | None:
    """The next request; None where the client has closed."""
    size = _read_exactly(client, 4)
    rest = _read_exactly(client, int.from_bytes(size, "big")) if size else b""
    return Frame(*decode_request_prefix(rest), size + rest) if rest else None


def _read_exactly(client: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = client.recv(count - len(data))
        if not more:
            return b""
        data += more
    return data
