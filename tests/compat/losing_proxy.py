"""A proxy in front of a broker that loses one answer to a Produce, and the connection with it.

The broker has taken the records then, and the client must send them again. All else passes through
unchanged.
"""

import socket

from tests.compat.proxy import BrokerProxy, read_frame

from holdfast.protocol.api import ApiKey


class LosingProxy(BrokerProxy):
    """It loses an answer when it is told to."""

    produces = 0
    """How many Produce requests have passed."""

    def lose_next(self) -> None:
        """Lose the answer to the next Produce."""
        self._is_armed.set()

    def serve(self, client: socket.socket, upstream: socket.socket) -> None:
        """One request, one answer: a client with one request in flight notices nothing."""
        with client, upstream:
            try:
                while frame := read_frame(client):
                    upstream.sendall(frame.data)
                    answer = read_answer(upstream)
                    if frame.api_key == ApiKey.PRODUCE:
                        self.produces += 1
                        if self._is_armed.is_set():
                            self._is_armed.clear()
                            return
                    client.sendall(answer)
            except OSError:
                pass


def read_answer(upstream: socket.socket) -> bytes:
    """One whole frame with its length; empty where the broker has closed."""
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        more = upstream.recv(1 << 16)
        if not more:
            return b""
        data += more
    return data
