"""The driver's desk for sink members on Spark: they report to it, and it tells them to stop.

Owns the connections of the members that run as tasks. A member works as long as its connection is
open. If the connection closes (the driver closed it or died, or a newer task took the same place),
the member lands what is open and leaves. So no task outlives its driver, and a worker that its
executor left behind does not stay in the group.
"""

import contextlib
import hmac
import socket
import threading
from typing import Final

from holdfast.errors import NOT_JSON
from holdfast.sink.reports import MemberReport, read_line, status_in, summed
from holdfast.sink.status import SinkStatus

SECRET_LINE_MAX: Final = 200
LINE_MAX: Final = 16 * 1024 * 1024


class Desk:
    """The driver's end of the connections. Its threads end when it is closed."""

    def __init__(self, host: str, secret: str) -> None:
        self._secret = secret.encode()
        self._lock = threading.Lock()
        self._connections: dict[int, socket.socket] = {}
        self._running: dict[int, SinkStatus] = {}
        self._ended: list[SinkStatus] = []
        self._failure: MemberReport | None = None
        self._is_stopping = False
        self._listener = socket.create_server((host, 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="sink-desk", daemon=True).start()

    @property
    def failure(self) -> MemberReport | None:
        """The report of the first member that cannot go on, or None."""
        with self._lock:
            return self._failure

    @property
    def members(self) -> int:
        """The number of members that run now."""
        with self._lock:
            return len(self._connections)

    def status(self) -> SinkStatus:
        with self._lock:
            return summed(self._running.values(), self._ended)

    def stop(self) -> None:
        """Tell all members, and those that connect later, to land what is open and to leave."""
        with self._lock:
            self._is_stopping = True
            for connection in self._connections.values():
                _half_close(connection)

    def close(self) -> None:
        self.stop()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            serve = threading.Thread(target=self._serve, args=[connection], daemon=True)
            serve.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            given, _, number = lines.readline(SECRET_LINE_MAX).strip().partition(b" ")
            if not hmac.compare_digest(given, self._secret) or not number.isdigit():
                return
            member = int(number)
            self._welcome(member, connection)
            try:
                while line := lines.readline(LINE_MAX):
                    self._take(member, connection, read_line(line))
            except (OSError, *NOT_JSON):
                pass
            finally:
                self._farewell(member, connection)

    def _welcome(self, member: int, connection: socket.socket) -> None:
        with self._lock:
            before = self._connections.pop(member, None)
            if before is not None:
                self._settle(member)
                _half_close(before)
            self._connections[member] = connection
            if self._is_stopping:
                _half_close(connection)

    def _take(self, member: int, connection: socket.socket, report: MemberReport) -> None:
        with self._lock:
            if report.failed is not None:
                self._failure = self._failure or report
            elif self._connections.get(member) is connection:
                self._running[member] = status_in(report)

    def _farewell(self, member: int, connection: socket.socket) -> None:
        with self._lock:
            if self._connections.get(member) is connection:
                del self._connections[member]
                self._settle(member)

    def _settle(self, member: int) -> None:
        last = self._running.pop(member, None)
        if last is not None:
            self._ended.append(last)


def _half_close(connection: socket.socket) -> None:
    """Close the driver's direction: the member reads the end, and may still report."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
