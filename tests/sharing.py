"""Which tests run on the same worker, and in which order workers take them (`pytest -n N`).

Owns the scopes: a worker takes a scope as a whole, so what its tests share (a Spark session, Apache
Kafka, a cluster) is started once. Half of the workers begin with the longest scopes, so that none
is left alone with one at the end; the other half begins with the shortest. A scope never changes
what a test does: each test also runs by itself.

The mark `xdist_group` is not used: pytest 9.2 ignores it without a word (pytest-xdist issue 1386).
"""

from collections.abc import Sequence
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

EACH = "each test"
FILE = "each file"
MEMBERS = "kafka: members"
"""Ten minutes, and idle for most of them: other tests have the cores meanwhile."""
RULES: Sequence[tuple[str, str]] = (
    ("tests/compat/test_members.py", MEMBERS),
    ("tests/compat/test_members_and_faults.py", MEMBERS),
    ("tests/compat/test_groups.py", MEMBERS),
    ("tests/compat/test_group_members.py", MEMBERS),
    ("tests/compat/test_group_migration.py", MEMBERS),
    ("tests/compat/test_consumer_protocol.py", MEMBERS),
    ("tests/spark/test_kills.py", FILE),
    ("tests/spark/test_topic_kills.py", FILE),
    ("tests/spark/test_seed_000.py", EACH),
    ("tests/spark/test_run.py", FILE),
    ("tests/spark/test_java_of_the_wheel.py", FILE),
    ("tests/spark/", "spark session"),
    ("tests/chaos/test_chaos.py", EACH),
    ("tests/chaos/test_store_outage.py", FILE),
    ("tests/chaos/", EACH),
    ("tests/docs/test_pages.py", EACH),
    ("tests/examples/test_examples.py", EACH),
    ("tests/compat/test_kafka_connect.py", EACH),
    ("tests/compat/test_several_brokers.py", FILE),
    ("tests/compat/test_several_disks.py", FILE),
    ("tests/compat/test_racks.py", FILE),
    ("tests/compat/test_kafka_tools.py", FILE),
    ("tests/compat/", "kafka"),
    ("tests/unit/client/test_against_kafka.py", "kafka"),
    ("tests/unit/client/test_transactions.py", "kafka"),
    ("tests/unit/records/test_check_against_kafka.py", "kafka"),
    ("tests/unit/cli/test_topic.py", "kafka"),
    ("tests/unit/spark/test_kafka_input.py", "kafka"),
    ("tests/unit/spark/test_topic_commit.py", "kafka"),
    ("tests/contract/", "s3"),
    ("tests/install/", "install"),
    ("tests/simulation/test_planted_bugs.py", EACH),
    ("tests/simulation/", FILE),
    ("tests/seeds/", FILE),
    ("tests/hostile/", FILE),
)
"""How a path begins, and its scope: the first that fits. Scopes run in this order."""


def scope_and_rank(nodeid: str) -> tuple[str, int]:
    """The scope of a test, and where its scope stands in the order."""
    path = nodeid.partition("::")[0]
    for rank, (start, scope) in enumerate(RULES):
        if path.startswith(start):
            names = {EACH: nodeid, FILE: path}
            return names.get(scope, scope), rank
    return path, len(RULES)


class Scopes(LoadScopeScheduling):
    """Gives each worker the next scope when it has almost nothing left to do."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        # In the order of RULES, not of the number of tests.
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return scope_and_rank(nodeid)[0]

    def _assign_work_unit(self, node: Any) -> None:
        # Every second worker begins with the quick tests: of the long ones, which keep whole cores
        # busy, no more run at a time than there are cores.
        if int(node.gateway.id.removeprefix("gw")) % 2:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: Any) -> None:
        # A worker needs one test to run and one that follows; a third would wait behind a long one.
        if self.workqueue and self._pending_of(self.assigned_work[node]) >= 2:
            return
        super()._reschedule(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scopes | None:
    return Scopes(config, log) if config.getvalue("dist") == "load" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest first, in workers only: a person wants the order of the files."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: scope_and_rank(item.nodeid)[1])
