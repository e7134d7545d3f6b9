"""Regular expressions of subscriptions: what they match, and that none can hold up the broker."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.groups.topic_pattern import TopicPattern, pattern_problem


@pytest.mark.parametrize(
    ("pattern", "names", "others"),
    [
        ("orders", ["orders"], ["orders2", "my-orders", ""]),
        ("^ord.*", ["orders", "ord"], ["my-orders"]),
        ("a|bc", ["a", "bc"], ["ac", "b"]),
        ("(foo|bar)-[0-9]+", ["foo-1", "bar-22"], ["foo-", "baz-1"]),
        ("[^a-c]x", ["dx", "-x"], ["ax", "x"]),
        (r"a\.b", ["a.b"], ["acb"]),
        (r"\w+_\d{2,3}", ["x_12", "x_123"], ["x_1", "x_1234"]),
        ("(?:ab){2}", ["abab"], ["ab", "ababab"]),
        ("x{2,}", ["xx", "xxxx"], ["x"]),
        ("(?i)Orders", ["orders", "ORDERS"], ["order"]),
        (r"\Aa\z|b$", ["a", "b"], ["ab"]),
        ("(?P<kind>a)b?", ["a", "ab"], ["b"]),
        ("[]a]", ["]", "a"], ["b"]),
        ("[a-]+", ["a-a"], ["b"]),
        ("", [""], ["a"]),
    ],
)
def test_a_pattern_describes_whole_names(pattern: str, names: list[str], others: list[str]):
    assert pattern_problem(pattern) is None
    assert [n for n in names if not TopicPattern(pattern).matches(n)] == []
    assert [n for n in others if TopicPattern(pattern).matches(n)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        "a)",
        "[a",
        "*a",
        "a**",
        "a{2",
        "a{3,2}",
        "a{9999}",
        "(?=a)",
        r"\b",
        "[b-a]",
        "\\",
        "[[:alpha:]]",
    ],
)
def test_what_is_not_understood_is_refused(pattern: str):
    assert pattern_problem(pattern)


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a*)*b", "(.*a){12}b"])
def test_no_pattern_takes_exponential_time(pattern: str):
    assert not TopicPattern(pattern).matches("a" * 249)


def test_a_pattern_of_too_many_states_is_refused():
    assert pattern_problem("((a{500}){500}){500}") == "too large"


@given(
    st.text(alphabet="ab.|()*+?[]^$-", max_size=10),
    st.lists(st.text(alphabet="ab-", max_size=5), max_size=5),
)
def test_whatever_is_understood_means_what_it_means_elsewhere(pattern: str, names: list[str]):
    if pattern_problem(pattern) is not None:
        return
    try:
        other = re.compile(pattern)
    except re.error:
        return
    for name in names:
        assert TopicPattern(pattern).matches(name) == bool(other.fullmatch(name))
