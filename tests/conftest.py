"""Fixtures that several suites share: real brokers, started at most once per session.

Apache Kafka is skipped, with the reason, where Java or Maven is missing; nothing else skips.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent.parent))
# Every JVM of the tests lives for seconds: compiling for a long life would take half of them.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

from tests.peers.class_archive import use_archive
from tests.peers.holdfast import HoldfastBroker
from tests.peers.jars import PeerUnavailable
from tests.peers.kafka import KafkaBroker
from tests.support.shared_environments import SharedEnvironments, of_this_run

# The tests start hundreds of Python processes: without files of bytecode each compiles all modules.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

use_archive()

# A loaded machine is no failure: hypothesis would time each example. A push is judged by what it
# changes, so its examples are the same each time (.ci/run sets CI); elsewhere they are new ones.
settings.register_profile("holdfast", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("holdfast")

pytest_plugins = [
    "tests.again",
    "tests.cpu",
    "tests.fast",
    "tests.long",
    "tests.sharing",
    "pytester",
]

SHORT_TIMES = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.heartbeat.interval.ms": "500",
    # Records of tests may have any timestamp: no broker that tests share applies retention.
    "log.retention.check.interval.ms": "86400000",
}
"""For both brokers that tests share."""


@pytest.fixture(scope="session")
def environments(tmp_path_factory: pytest.TempPathFactory) -> SharedEnvironments:
    """The wheel in bare environments, each built once for all workers."""
    return of_this_run(tmp_path_factory)


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """Apache Kafka, one broker, with its default settings and auto-creation; but for times."""
    settings = {
        **SHORT_TIMES,
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.min.heartbeat.interval.ms": "100",
        # How often it looks for transactions that are open for too long: 10 s by default.
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    }
    try:
        broker = KafkaBroker(tmp_path_factory.mktemp("kafka"), settings=settings)
    except PeerUnavailable as unavailable:
        pytest.skip(str(unavailable))
    try:
        yield broker.start()
    finally:
        broker.stop()


@pytest.fixture(scope="session")
def holdfast_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HoldfastBroker]:
    """Holdfast on a directory, with its default settings; but for times, as with Kafka."""
    given = [("--override", f"{name}={value}") for name, value in SHORT_TIMES.items()]
    broker = HoldfastBroker(
        tmp_path_factory.mktemp("holdfast"), arguments=[word for pair in given for word in pair]
    )
    try:
        yield broker.start()
    finally:
        broker.stop()
