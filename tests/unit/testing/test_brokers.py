"""Brokers for the tests of others: they answer real clients, and leave nothing behind."""

import re
import socket
import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

import holdfast.testing
from holdfast.errors import ConfigurationError

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "test-with-holdfast.md"
SECONDS_MAX = 60
COUNT = 100


def produce(servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for i in range(COUNT):
        producer.produce(topic, value=str(i))
    assert producer.flush(SECONDS_MAX) == 0


def consume(servers: str, topic: str) -> set[str]:
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    records = consumer.consume(COUNT, timeout=SECONDS_MAX)
    consumer.close()
    return {record.value().decode() for record in records}


def brokers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "holdfast-broker"]


@pytest.mark.parametrize("process", [False, True], ids=["in a thread", "in a process"])
def test_a_group_reads_back_what_was_produced(process: bool):
    with holdfast.testing.broker(process=process, num_partitions=3) as broker:
        produce(broker.bootstrap_servers, "orders")
        assert consume(broker.bootstrap_servers, "orders") == {str(i) for i in range(COUNT)}
        topics = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(
            "orders", timeout=SECONDS_MAX
        )
        assert len(topics.topics["orders"].partitions) == 3


@pytest.mark.parametrize("process", [False, True], ids=["in a thread", "in a process"])
def test_nothing_listens_and_no_thread_is_left_after_the_block(process: bool):
    with holdfast.testing.broker(process=process) as broker:
        produce(broker.bootstrap_servers, "orders")
    with socket.socket() as probe:
        assert probe.connect_ex((broker.host, broker.port)) != 0
    assert not brokers()


def test_two_brokers_at_once_know_nothing_of_each_other():
    with holdfast.testing.broker() as first, holdfast.testing.broker() as second:
        assert first.port != second.port
        produce(first.bootstrap_servers, "orders")
        admin = AdminClient({"bootstrap.servers": second.bootstrap_servers})
        assert "orders" not in admin.list_topics(timeout=SECONDS_MAX).topics


def test_topics_are_created_on_first_use_only_where_that_is_wanted():
    with holdfast.testing.broker(auto_create_topics=False) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        assert admin.list_topics("orders", timeout=SECONDS_MAX).topics["orders"].error is not None
        (made,) = admin.create_topics([NewTopic("orders", 2)]).values()
        made.result(SECONDS_MAX)
        assert "orders" in admin.list_topics(timeout=SECONDS_MAX).topics


def test_an_error_in_the_block_ends_the_broker():
    with pytest.raises(ZeroDivisionError), holdfast.testing.broker():
        _ = 1 // 0
    assert not brokers()


def test_a_setting_that_is_not_there_is_refused_with_its_name():
    with (
        pytest.raises(ConfigurationError, match=r"no\.such\.setting"),
        holdfast.testing.broker(settings={"no.such.setting": "1"}),
    ):
        pytest.fail("it started")
    assert not brokers()


def test_a_process_that_ends_at_once_is_told_with_what_it_said():
    with (
        pytest.raises(holdfast.testing.BrokerNotReady, match=r"no\.such\.setting"),
        holdfast.testing.broker(process=True, settings={"no.such.setting": "1"}),
    ):
        pytest.fail("it started")


def test_the_tests_of_the_page_pass_with_the_plugin_alone(pytester: pytest.Pytester):
    with_pytest, by_hand = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    pytester.makepyfile(with_pytest)
    pytester.runpytest_subprocess("-p", "no:xdist").assert_outcomes(passed=1)
    done = pytester.runpython_c(by_hand)
    assert done.ret == 0
    assert re.fullmatch(r"127\.0\.0\.1:\d+", done.outlines[0])
