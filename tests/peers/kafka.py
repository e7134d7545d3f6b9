"""Apache Kafka as a peer: one KRaft broker on free ports of 127.0.0.1, in a folder of its own.

`python -m tests.peers.kafka fetch` fills the cache; `... run` keeps a broker up until Ctrl-C.
"""

import argparse
import base64
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.peers.jars import QUICK_START, java_command, kafka_class_path, program_class_path
from tests.peers.process import PeerFailed, Process, answers_api_versions, free_port

START_SECONDS_MAX = 90.0
SMALL_HEAP = ("-Xms128m", "-Xmx384m", *QUICK_START)
# What Kafka's own start script gives a broker.
KAFKA_DEFAULT_HEAP = (
    *("-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
)


class KafkaBroker:
    """Broker and controller in one process. Stop and start keep the data and the port."""

    name = "kafka"

    def __init__(
        self,
        folder: Path,
        *,
        settings: Mapping[str, str] | None = None,
        jvm_options: Sequence[str] = SMALL_HEAP,
        port: int | None = None,
        cluster_id: str | None = None,
    ) -> None:
        self.folder = folder
        self.port = port or free_port()
        self._cluster_id = cluster_id or new_cluster_id()
        self._settings = dict(settings or {})
        self._jvm_options = tuple(jvm_options)
        self._process: Process | None = None
        self._java = java_command()
        self._class_path = kafka_class_path()
        self._properties = folder / "server.properties"

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def data_folder(self) -> Path:
        return self.folder / "data"

    @property
    def process(self) -> Process:
        if self._process is None:
            raise PeerFailed("Apache Kafka was not started")
        return self._process

    def start(self) -> "KafkaBroker":
        """Format the storage if it is new, start, and return when the broker answers."""
        self.launch()
        return self.wait_ready()

    def wait_ready(self) -> "KafkaBroker":
        self.process.wait_until(
            lambda: answers_api_versions("127.0.0.1", self.port),
            seconds_max=START_SECONDS_MAX,
            what="Apache Kafka answers ApiVersions",
        )
        return self

    def launch(self) -> None:
        """Start without waiting for an answer."""
        if not self._properties.exists():
            self._format()
        self._process = Process(
            self._java_command("kafka.Kafka", str(self._properties)),
            log=self.folder / "kafka.log",
        )

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()

    def kill(self) -> None:
        self.process.kill()

    def _java_command(self, main: str, *arguments: str) -> list[str]:
        return [self._java, *self._jvm_options, "-cp", self._class_path, main, *arguments]

    def _format(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = [f"{name}={value}" for name, value in self._server_properties().items()]
        pending = self._properties.with_suffix(".pending")
        pending.write_text("\n".join(lines) + "\n")
        formatted = subprocess.run(
            self._java_command(
                *("kafka.tools.StorageTool", "format", "-t", self._cluster_id, "-c", str(pending))
            ),
            capture_output=True,
            text=True,
            timeout=START_SECONDS_MAX,
            check=False,
        )
        if formatted.returncode != 0:
            raise PeerFailed(f"StorageTool format: {formatted.stdout} {formatted.stderr}")
        pending.rename(self._properties)

    def _server_properties(self) -> dict[str, str]:
        controller_port = free_port()
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": (
                f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller_port}"
            ),
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.data_folder),
            "num.partitions": "1",
            "default.replication.factor": "1",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "true",
            # The first check of retention: it would take records of tests with old timestamps.
            "log.initial.task.delay.ms": "86400000",
            **self._settings,
        }


def new_cluster_id() -> str:
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    # A leading dash would be read as an option.
    return cluster_id.replace("-", "x")


def main() -> None:
    """Fetch the jars, or run a broker for a person to try things on."""
    parser = argparse.ArgumentParser(prog="python -m tests.peers.kafka", description=__doc__)
    parser.add_argument("action", choices=("fetch", "run"))
    action = parser.parse_args().action
    class_path = program_class_path()
    if action == "fetch":
        print(class_path)
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-kafka-") as folder:
        broker = KafkaBroker(Path(folder) / "broker").start()
        print(f"Apache Kafka is ready at {broker.bootstrap}, pid {broker.process.pid}", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            broker.stop()


if __name__ == "__main__":
    main()
