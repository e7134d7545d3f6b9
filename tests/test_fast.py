"""`--fast` runs what starts no process, and nothing else."""

import pytest

TESTS = """
    import subprocess
    import sys
    import pytest

    def test_without_a_process():
        pass

    def test_with_a_process():
        subprocess.run([sys.executable, "-c", ""], check=True)

    @pytest.fixture
    def child():
        return subprocess.Popen([sys.executable, "-c", ""]).wait()

    def test_with_a_process_in_a_fixture(child):
        pass

    @pytest.mark.slow
    def test_that_is_slow():
        pass
"""
MARKERS = "[pytest]\nmarkers = slow\n"


def outcomes(pytester: pytest.Pytester, *options: str) -> dict[str, int]:
    pytester.makepyfile(TESTS)
    pytester.makeini(MARKERS)
    told = pytester.runpytest_inprocess("-p", "tests.fast", "-p", "no:cacheprovider", *options)
    return told.parseoutcomes()


def test_fast_skips_a_test_where_it_starts_a_process_and_leaves_out_slow_ones(
    pytester: pytest.Pytester,
):
    assert outcomes(pytester, "--fast") == {"passed": 1, "skipped": 2, "deselected": 1}


def test_without_it_all_tests_run(pytester: pytest.Pytester):
    assert outcomes(pytester) == {"passed": 4}
