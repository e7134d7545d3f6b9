"""Who gets a second try, and who does not."""

import pytest

FAILS_AT_FIRST = """
    import pytest
    tries = []

    {mark}
    def test_it():
        tries.append(1)
        assert len(tries) == {good}
"""


def outcomes(pytester: pytest.Pytester, *, mark: str, good: int) -> dict[str, int]:
    pytester.makepyfile(FAILS_AT_FIRST.format(mark=mark, good=good))
    return pytester.runpytest("-p", "tests.again", "-p", "no:cacheprovider").parseoutcomes()


def test_a_test_of_others_that_fails_is_tried_again(pytester: pytest.Pytester):
    told = outcomes(pytester, mark="@pytest.mark.foreign", good=3)
    assert (told.get("passed"), told.get("failed")) == (1, None)


def test_a_test_with_an_unsteady_client_is_tried_again(pytester: pytest.Pytester):
    told = outcomes(pytester, mark="@pytest.mark.unsteady('why')", good=3)
    assert (told.get("passed"), told.get("failed")) == (1, None)


def test_a_test_of_others_that_fails_each_time_fails(pytester: pytest.Pytester):
    told = outcomes(pytester, mark="@pytest.mark.foreign", good=4)
    assert (told.get("passed"), told.get("failed")) == (None, 1)


def test_a_test_of_ours_is_run_once(pytester: pytest.Pytester):
    told = outcomes(pytester, mark="", good=2)
    assert (told.get("passed"), told.get("failed")) == (None, 1)
