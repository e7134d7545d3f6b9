"""Kafka Connect as a peer: one distributed worker with its REST interface on 127.0.0.1.

The settings are the smallest that a worker starts with. The replication factor of its internal
topics is not among them, so the worker asks for its default, 3.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.peers.jars import QUICK_START, connect_jars, java_command
from tests.peers.process import PeerFailed, Process, free_port

START_SECONDS_MAX = 120.0
REST_SECONDS_MAX = 60.0
INTERNAL_TOPICS = ("connect-configs", "connect-offsets", "connect-status")
FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"


class ConnectWorker:
    """A worker and its plugin path. A worker that is started again keeps its REST port."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder = folder
        self.port = free_port()
        self._bootstrap = bootstrap
        self._java = java_command()
        self._jars = connect_jars()
        self._process: Process | None = None

    @property
    def process(self) -> Process:
        if self._process is None:
            raise PeerFailed("Kafka Connect was not started")
        return self._process

    def start(self) -> "ConnectWorker":
        """Start, and return when the worker is a member of its group and answers."""
        properties = self._write_settings()
        class_path = ":".join(str(jar) for jar in self._jars if "connect-file" not in jar.name)
        command = [self._java, "-Xmx256m", *QUICK_START, "-cp", class_path]
        self._process = Process(
            [*command, "org.apache.kafka.connect.cli.ConnectDistributed", str(properties)],
            log=self.folder / "connect.log",
        )
        self._process.wait_until(
            lambda: self._ask("GET", "/connectors") is not None,
            seconds_max=START_SECONDS_MAX,
            what="Kafka Connect answers",
        )
        return self

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def put_connector(self, name: str, config: Mapping[str, str]) -> None:
        """Create a connector, or give it these settings."""
        self.process.wait_until(
            lambda: self._ask("PUT", f"/connectors/{name}/config", config) is not None,
            seconds_max=START_SECONDS_MAX,
            what=f"connector {name} is accepted",
        )

    def states(self, name: str) -> list[str]:
        """The states of a connector and of its tasks; none where it is not known yet."""
        status = self._ask("GET", f"/connectors/{name}/status")
        if status is None:
            return []
        return [status["connector"]["state"], *(task["state"] for task in status["tasks"])]

    def source_offsets(self, name: str) -> list[dict[str, Any]]:
        """How far a source connector has come, as its worker has stored it."""
        found = self._ask("GET", f"/connectors/{name}/offsets")
        return [] if found is None else [entry["offset"] for entry in found["offsets"]]

    def _write_settings(self) -> Path:
        plugins = self.folder / "plugins"
        plugins.mkdir(parents=True, exist_ok=True)
        for jar in self._jars:
            if "connect-file" in jar.name and not (plugins / jar.name).exists():
                (plugins / jar.name).symlink_to(jar)
        settings = {
            "bootstrap.servers": self._bootstrap,
            "group.id": "connect-cluster",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "config.storage.topic": INTERNAL_TOPICS[0],
            "offset.storage.topic": INTERNAL_TOPICS[1],
            "status.storage.topic": INTERNAL_TOPICS[2],
            "offset.flush.interval.ms": "500",
            "listeners": f"http://127.0.0.1:{self.port}",
            "plugin.path": str(plugins),
            # Not every jar is searched for plugins: a worker starts sooner.
            "plugin.discovery": "service_load",
        }
        properties = self.folder / "worker.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return properties

    def _ask(self, method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
        """The answer of the REST interface; None while there is none, or another worker's turn."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=REST_SECONDS_MAX) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refused:
            if refused.code in (404, 409, 500, 503):
                return None
            raise PeerFailed(f"{method} {path}: {refused.code} {refused.read()[:600]!r}") from None
        except OSError:
            return None
