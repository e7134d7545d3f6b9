"""Health and metrics of a sink over HTTP: /metrics, /health and /live.

Owns the content of each page. Must never ask the worker: pages show the last status.
"""

from http import HTTPStatus

from holdfast.client.address import Address, parse_listen
from holdfast.http_listener import Answer, HttpListener, json_answer, live_page, metrics_page
from holdfast.sink.metrics import SinkCollector
from holdfast.sink.status import SinkStatus


class HealthServer:
    """An HTTP server that shows the last status passed to `report`."""

    def __init__(self, listen: str, *, memory_bytes: int) -> None:
        self._status: SinkStatus | None = None
        collector = SinkCollector(lambda: self._status, memory_bytes=memory_bytes)
        pages = {
            "/metrics": metrics_page(collector),
            "/health": self.health_page,
            "/live": live_page,
        }
        self.paths = tuple(pages)
        self._listener = HttpListener(parse_listen(listen), pages, setting="[http] listen")

    def report(self, status: SinkStatus) -> None:
        self._status = status

    async def start(self) -> Address:
        """Listen. Raise ConfigurationError if the address cannot be used."""
        return await self._listener.start()

    async def stop(self) -> None:
        await self._listener.stop()

    def health_page(self) -> Answer:
        """Return 200 while the sink is healthy, otherwise 503 with the problems."""
        is_well = self._status is not None and self._status.is_healthy
        code = HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE
        return json_answer(code, health_of(self._status))


def health_of(status: SinkStatus | None) -> dict[str, object]:
    """Return the response to /health, before it is encoded as JSON."""
    if status is None:
        return {"healthy": False, "state": "starting", "problems": ["the sink is still starting"]}
    return {
        "healthy": status.is_healthy,
        "state": status.state,
        "problems": status.problems,
        "store_problem_seconds": status.store_problem_seconds,
        "member_id": status.member_id,
        "member_epoch": status.epoch,
        "partitions": len(status.partitions),
        "lag": status.lag,
        "held_bytes": status.held_bytes,
        "fetch_paused": status.fetch_paused,
        "last_landed": status.last_landed,
    }
