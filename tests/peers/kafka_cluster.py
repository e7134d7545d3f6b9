"""Apache Kafka as a cluster: three nodes (KRaft, broker and controller each), replication 3."""

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.peers.kafka import SMALL_HEAP, KafkaBroker, new_cluster_id
from tests.peers.process import free_port

NODES = (1, 2, 3)
REPLICATED = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
}


class KafkaCluster:
    """Three nodes on 127.0.0.1."""

    name = "kafka"

    def __init__(
        self,
        folder: Path,
        *,
        settings: Mapping[str, str] | None = None,
        jvm_options: Sequence[str] = SMALL_HEAP,
    ) -> None:
        controllers = {node: free_port() for node in NODES}
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in controllers.items())
        cluster_id = new_cluster_id()
        self.brokers: dict[int, KafkaBroker] = {}
        for node in NODES:
            port = free_port()
            self.brokers[node] = KafkaBroker(
                folder / f"node-{node}",
                port=port,
                cluster_id=cluster_id,
                jvm_options=jvm_options,
                settings={
                    "node.id": str(node),
                    "controller.quorum.voters": voters,
                    "listeners": (
                        f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controllers[node]}"
                    ),
                    **REPLICATED,
                    **(settings or {}),
                },
            )

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def start(self) -> "KafkaCluster":
        for broker in self.brokers.values():
            broker.launch()
        for broker in self.brokers.values():
            broker.wait_ready()
        return self

    def stop(self) -> None:
        for broker in self.brokers.values():
            os.kill(broker.process.pid, signal.SIGTERM)
        for broker in self.brokers.values():
            broker.stop()
