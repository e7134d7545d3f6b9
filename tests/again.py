"""A second try for tests that others can fail: another's client on another's broker, or a client
that stands still by chance on Apache Kafka, too.

A test with nothing of ours says that its own demands are fair. Where it fails on a busy machine,
because a client or a broker of others was out of step for once, that tells nothing of Holdfast;
where it fails each time, the demand is not fair. A test that is marked `unsteady` has a client that
was seen to stand still on Apache Kafka in the same test: the mark says which, and where. All other
tests that have any part of Holdfast in them are run once.
"""

import pytest
from _pytest.runner import runtestprotocol

TRIES = 3
MARKS = ("foreign", "unsteady")
SECONDS_MAX = 900
"""Of all tries together."""


def _has_mark(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) is not None for name in MARKS)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _has_mark(item):
            item.add_marker(pytest.mark.timeout(SECONDS_MAX))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if not _has_mark(item):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports: list[pytest.TestReport] = []
    for tries in range(1, TRIES + 1):
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        if not any(report.failed for report in reports):
            break
        if tries < TRIES:
            item.warn(pytest.PytestWarning(f"failed, and is tried again ({tries} of {TRIES})"))
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
