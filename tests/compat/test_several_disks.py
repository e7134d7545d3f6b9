"""Three brokers, each with a disk of its own: what one acknowledged from its disk is never lost,
hidden from then on, or overtaken, whoever has the lane."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.peers.holdfast import HoldfastBroker
from tests.peers.holdfast_cluster import HoldfastCluster
from tests.peers.process import wait_until
from tests.support.load import PARTITIONS, SECONDS_MAX, Load, check, leaders

A_DAY_MS = "86400000"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[HoldfastCluster]:
    arguments = ["--spool", f"{tmp_path}/spool-{{id}}", "--claim-valid-ms", "2000"]
    cluster = HoldfastCluster(tmp_path, arguments=arguments)
    try:
        yield cluster.start()
    finally:
        cluster.stop()


def test_records_that_are_on_one_disk_alone_survive_its_brokers_death_pause_and_drain(
    cluster: HoldfastCluster, topic_name: str
):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    configs = {"holdfast.ack": "disk", "holdfast.flush.ms": A_DAY_MS}
    admin.create_topics([NewTopic(topic_name, PARTITIONS, 1, config=configs)])[topic_name].result(
        20
    )
    with Load(cluster, topic_name) as load:
        load.until_acked(1000)
        assert sum(broker.metric("holdfast_spool_frames_total") for broker in up(cluster)) > 0
        cluster.brokers[1].kill()
        load.until_acked(300)
        cluster.brokers[1].start()
        until_all_lead(cluster, topic_name)
        load.until_acked(1000)
        cluster.pause(2)
        wait_until(
            lambda: 2 not in leaders(cluster, topic_name, 1),
            seconds_max=SECONDS_MAX,
            what="the lanes of the paused broker have other owners",
        )
        load.until_acked(300)
        cluster.resume(2)
        until_all_lead(cluster, topic_name)
        load.until_acked(1000)
        cluster.brokers[3].stop()
        load.until_acked(1000)
        cluster.brokers[3].start()
        load.until_acked(300)
    check(load, cluster.bootstrap)


def up(cluster: HoldfastCluster) -> list[HoldfastBroker]:
    return list(cluster.brokers.values())


def until_all_lead(cluster: HoldfastCluster, topic: str) -> None:
    """Every partition has a leader again: no one waits for a disk."""
    wait_until(
        lambda: -1 not in leaders(cluster, topic, 1),
        seconds_max=SECONDS_MAX,
        what="every partition has a leader",
    )
