"""Tests that share something expensive run on one worker."""

import re
import textwrap
from pathlib import Path

import pytest
from tests import sharing
from tests.sharing import RULES, scope_and_rank

SIX_TESTS = """
    import pytest

    @pytest.mark.parametrize("number", range(6))
    def test_it(number):
        pass
"""


def test_each_rule_is_for_tests_that_are_there(request: pytest.FixtureRequest):
    root = request.config.rootpath
    assert not [start for start, _ in RULES if not (root / start).exists()]


def test_a_scope_is_a_folder_a_file_or_one_test():
    session, _ = scope_and_rank("tests/spark/test_batch.py::test_a")
    assert scope_and_rank("tests/spark/test_stream.py::test_b[x::y]")[0] == session
    assert scope_and_rank("tests/spark/test_kills.py::test_a")[0] == "tests/spark/test_kills.py"
    one = "tests/chaos/test_chaos.py::test_a[disk]"
    assert scope_and_rank(one)[0] == one
    assert scope_and_rank("tests/unit/test_x.py::test_a") == ("tests/unit/test_x.py", len(RULES))


def test_two_files_of_one_scope_run_on_one_worker(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
):
    """The marks of xdist stopped doing so, without a word, with a new pytest."""
    folder = pytester.mkdir("tests") / "spark"
    folder.mkdir()
    for name in ("test_batch.py", "test_stream.py"):
        (folder / name).write_text(textwrap.dedent(SIX_TESTS))
    monkeypatch.setenv("PYTHONPATH", str(Path(sharing.__file__).parent))
    told = pytester.runpytest_subprocess(
        *("-p", "sharing", "-p", "no:cacheprovider", "-n", "2", "-v", "tests")
    )
    told.assert_outcomes(passed=12)
    workers = re.findall(r"\[(gw\d)\] .* PASSED", told.stdout.str())
    assert len(workers) == 12
    assert len(set(workers)) == 1
