"""Which tests are the long ones: `make test-long`, and every push (.ci/run); not `make test`.

Owns the list. A test is here if it costs 20 s of processor time or more and shows, on a longer way
or on the peer, what a shorter test of `make test` shows too. `pytest --long` runs these alone,
`pytest --short` runs all others, and `pytest` runs both.
"""

import pytest

LONG = (
    # Spark is started several times for each; README.md stays in `make test`.
    "tests/docs/test_pages.py::test_a_page_does_what_it_says[docs/tutorials/from-kafka-to-parquet",
    "tests/docs/test_pages.py::test_a_page_does_what_it_says[docs/how-to/read-what-was-landed",
    "tests/docs/test_pages.py::test_a_page_does_what_it_says[docs/how-to/write-delta-and-iceberg",
    "tests/docs/test_pages.py::test_a_page_does_what_it_says[docs/how-to/move-from-sparks",
    "tests/docs/test_pages.py::test_a_page_does_what_it_says[docs/how-to/run-on-spark-clusters",
    "tests/examples/test_examples.py::test_the_demo",
    "tests/examples/test_examples.py::test_the_examples_on_spark",
    "tests/install/test_on_spark.py",
    "tests/spark/test_java_of_the_wheel.py",
    # Kills: the seeds of the same failures are in tests/seeds and tests/spark/test_ledger_sink.py.
    "tests/spark/test_kills.py::test_each_id",
    "tests/spark/test_kills.py::test_an_overtaken",
    "tests/spark/test_topic_kills.py::test_a_consumer",
    "tests/spark/test_seed_000.py",
    "tests/spark/test_backfill.py::test_a_backfill_that_was_killed",
    "tests/spark/test_run.py::test_a_broker_that_is_killed_under",
    "tests/chaos/test_streams.py::test_an_application",
    "tests/chaos/test_several_brokers.py",
    "tests/compat/test_kafka_connect.py",
    # What is planted is found, and the demands are met by Apache Kafka, too.
    "tests/chaos/test_chaos.py::test_a_broker_that_wakes_up",
    "tests/chaos/test_sink.py::test_so_it_is",
    "tests/chaos/test_sink.py::test_with_the_late_ack",
    "tests/chaos/test_transactions.py::test_so_it_is",
)
"""How the id of a test begins."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="only the long tests")
    parser.addoption("--short", action="store_true", help="all but the long tests")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--long") == config.getoption("--short"):
        return
    is_wanted = {item: item.nodeid.startswith(LONG) == config.getoption("--long") for item in items}
    config.hook.pytest_deselected(items=[item for item in items if not is_wanted[item]])
    items[:] = [item for item in items if is_wanted[item]]
