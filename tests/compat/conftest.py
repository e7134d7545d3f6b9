"""The two clusters, the client families and the client programs that the compat tests run over."""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.compat.families.aio import Aiokafka
from tests.compat.families.interface import ClientFamily, ErrorCode, Topic
from tests.compat.families.kafka_python import KafkaPython
from tests.compat.families.librdkafka import Librdkafka
from tests.compat.families.program import FranzGo, Java
from tests.peers.holdfast import HoldfastBroker
from tests.peers.jars import PeerUnavailable
from tests.peers.kafka import KafkaBroker
from tests.peers.process import wait_until
from tests.support.client_process import PROGRAMS, ClientProcess, Program, why_missing

FAMILIES: tuple[type[ClientFamily], ...] = (Librdkafka, KafkaPython, Aiokafka, Java, FranzGo)
NUMBERS = itertools.count()
SESSION_MS = 6_000
"""The shortest that both clusters accept at their defaults."""
HEARTBEAT_MS = 500


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that needs an ability runs over the families that have it; codecs likewise."""
    needed: set[Any] = set()
    for mark in metafunc.definition.iter_markers("needs"):
        needed |= set(mark.args)
    if "program" in metafunc.fixturenames:
        programs = [program for program in PROGRAMS if needed <= program.abilities]
        metafunc.parametrize("program", programs, ids=[program.name for program in programs])
    if "client" not in metafunc.fixturenames:
        return
    able = [family for family in FAMILIES if needed <= family.abilities]
    if "codec" in metafunc.fixturenames:
        cases = [(family, codec) for family in able for codec in family.codecs]
        ids = [f"{family.name}-{codec}" for family, codec in cases]
        metafunc.parametrize(("client", "codec"), cases, indirect=["client"], ids=ids)
    else:
        metafunc.parametrize("client", able, indirect=True, ids=[f.name for f in able])


BY_LIBRDKAFKA = frozenset({"test_group_migration"})
"""Tests that drive librdkafka themselves."""


KAFKA_PYTHON_STANDS_STILL = (
    "a member of kafka-python that owns nothing may stay outside of its group on a busy machine:"
    " seen in these tests on Apache Kafka 4.3.1 and on Holdfast"
)


def _has_kafka_python_as_member(item: pytest.Item) -> bool:
    if item.path.stem != "test_group_members":
        return False
    program = getattr(item, "callspec", None) and item.callspec.params.get("program")
    return program is None or program.name == "kafka-python"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Another's client on Apache Kafka: nothing of ours is in such a test."""
    for item in items:
        if _has_kafka_python_as_member(item):
            item.add_marker(pytest.mark.unsteady(KAFKA_PYTHON_STANDS_STILL))
        fixtures = set(getattr(item, "fixturenames", ()))
        is_anothers = bool(fixtures & {"client", "program"}) or item.path.stem in BY_LIBRDKAFKA
        if item.get_closest_marker("peer") is not None and is_anothers:
            item.add_marker(pytest.mark.foreign)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*abilities): what a client family must be able to do")


@pytest.fixture(
    scope="session",
    params=["holdfast", pytest.param("kafka", marks=pytest.mark.peer)],
)
def cluster(request: pytest.FixtureRequest) -> KafkaBroker | HoldfastBroker:
    """A running broker: each test runs once over each."""
    return request.getfixturevalue(f"{request.param}_broker")


@pytest.fixture(scope="session")
def families() -> Iterator[Callable[[type[ClientFamily], str], ClientFamily]]:
    """Opens a client family for a cluster once, and closes all of them at the end."""
    opened: dict[tuple[type[ClientFamily], str], ClientFamily] = {}

    def family_for(family: type[ClientFamily], bootstrap: str) -> ClientFamily:
        if (family, bootstrap) not in opened:
            opened[family, bootstrap] = family(bootstrap)
        return opened[family, bootstrap]

    yield family_for
    for client in opened.values():
        client.close()


@pytest.fixture
def client(
    request: pytest.FixtureRequest,
    cluster: KafkaBroker | HoldfastBroker,
    families: Callable[[type[ClientFamily], str], ClientFamily],
) -> ClientFamily:
    """One client family, talking to the cluster."""
    try:
        return families(request.param, cluster.bootstrap)
    except PeerUnavailable as unavailable:
        pytest.skip(str(unavailable))


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses; the topic is not there yet."""
    words = request.node.originalname.removeprefix("test_")[:60]
    return f"{words}-{os.getpid()}-{next(NUMBERS)}"


@pytest.fixture
def topic(topic_name: str, new_topic: Callable[..., str]) -> str:
    """A fresh topic with one partition."""
    return new_topic(topic_name)


@pytest.fixture
def new_topic(client: ClientFamily) -> Callable[..., str]:
    """Creates a topic and waits until its metadata names a leader for every partition."""

    def create(name: str, *, partitions: int = 1, **configs: str) -> str:
        named = {config.replace("_", "."): value for config, value in configs.items()}
        error = client.create_topic(name, partitions=partitions, configs=named)
        assert error == ErrorCode.NONE

        def has_leaders() -> bool:
            described = client.describe_topic(name)
            return (
                isinstance(described, Topic)
                and len(described.partitions) == partitions
                and all(partition.leader >= 0 for partition in described.partitions)
            )

        wait_until(has_leaders, seconds_max=20, what=f"topic {name} has leaders")
        return name

    return create


@pytest.fixture
def admin(cluster: KafkaBroker | HoldfastBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


@pytest.fixture
def partitioned_topic(topic_name: str, admin: AdminClient) -> Callable[[int], str]:
    """Creates the test's topic with so many partitions."""

    def create(partitions: int) -> str:
        admin.create_topics([NewTopic(topic_name, partitions, 1)])[topic_name].result(20)
        return topic_name

    return create


class StartProgram(Protocol):
    """Starts a program in a role; the rest of what it is to be is given by name."""

    def __call__(self, program: Program, role: str, **be: Any) -> ClientProcess: ...


@pytest.fixture
def start_program(cluster: KafkaBroker | HoldfastBroker, tmp_path: Path) -> Iterator[StartProgram]:
    """Starts client programs on the cluster; those that still run at the end are killed."""
    started: list[ClientProcess] = []

    def start(program: Program, role: str, **be: Any) -> ClientProcess:
        missing = why_missing(program)
        if missing is not None:
            pytest.skip(missing)
        defaults = {
            "bootstrap": cluster.bootstrap,
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "transaction_timeout_ms": 60_000,
        }
        log = tmp_path / f"{program.name}-{len(started)}.log"
        process = ClientProcess(program, {"role": role, **defaults, **be}, log=log)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
