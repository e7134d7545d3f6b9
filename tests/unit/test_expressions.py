"""Expressions of clients: what they match, what is refused, and how much work one slice is."""

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.expressions import (
    SLICE_NAMES_MAX,
    SLICE_STEPS_MAX,
    BadExpression,
    Expression,
    expression_problem,
)


@pytest.mark.parametrize(
    ("text", "names", "others"),
    [
        ("orders", ["orders"], ["orders2", "my-orders", ""]),
        ("^ord.*", ["orders", "ord"], ["my-orders"]),
        ("a|bc", ["a", "bc"], ["ac", "b"]),
        ("(foo|bar)-[0-9]+", ["foo-1", "bar-22"], ["foo-", "baz-1"]),
        ("[^a-c]x", ["dx", "-x"], ["ax", "x"]),
        (r"a\.b", ["a.b"], ["acb"]),
        (r"\w+_\d{2,3}", ["x_12", "x_123"], ["x_1", "x_1234"]),
        ("(?:ab){2}", ["abab"], ["ab", "ababab"]),
        ("(?i)Orders", ["orders", "ORDERS"], ["order"]),
        (r"\Aa\z|b$", ["a", "b"], ["ab"]),
        ("(?P<kind>a)b?", ["a", "ab"], ["b"]),
        ("[]a]", ["]", "a"], ["b"]),
        ("[[:alpha:]]+", ["abc"], ["ab1"]),
        (r"a\b.b", ["a.b"], ["acb"]),
        (r"\pL+", ["ärger"], ["a1"]),
        (r"\\C", ["\\C"], ["x"]),
        (".{249}", ["a" * 249], ["a" * 248]),
        ("", [""], ["a"]),
    ],
)
def test_an_expression_describes_whole_names(text: str, names: list[str], others: list[str]):
    expression = Expression(text)
    assert [name for name in names if not expression.matches(name)] == []
    assert [name for name in others if expression.matches(name)] == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(", "missing )"),
        ("a)", "unexpected )"),
        ("[a", "missing ]"),
        ("*a", "no argument for repetition operator"),
        ("a{3,2}", "invalid repetition size"),
        ("a{9999}", "invalid repetition size"),
        ("((a{500}){500}){500}", "invalid repetition size"),
        ("(?=a)", "invalid perl operator"),
        (r"(a)\1", "invalid escape sequence"),
        ("[b-a]", "invalid character class range"),
        ("\\", "trailing \\"),
        (r"a\Cb", "a single byte"),
        (r"\\\C", "a single byte"),
        ("(" * 5_000 + ")" * 5_000, "10000 characters"),
        (".{1000}", "instructions"),
        (r"\pL{900}", "too large"),
    ],
)
def test_a_bad_expression_is_refused_with_its_reason(text: str, reason: str):
    assert reason in (expression_problem(text) or "")
    with pytest.raises(BadExpression):
        Expression(text)


def test_a_name_without_bound_matches_nothing():
    assert Expression("a*").matches("a" * 1_000)
    assert not Expression("a*").matches("a" * 1_001)


@pytest.mark.parametrize(
    "text", ["(a+)+b", "(a|a)*b", "(a*)*b", "(.*a){12}b", "(a|b)*a(a|b){300}", "[a-c]+", "", ".*"]
)
def test_no_slice_is_more_work_than_its_bound(text: str):
    chance = random.Random(7)
    names = ["".join(chance.choices("ab", k=chance.randrange(240))) for _ in range(3_000)]
    expression = Expression(text)
    tried = 0
    one_name = expression.program_size * 250
    for found in expression.slices(_counted(names, counts := [])):
        slice_names, slice_letters = len(counts) - tried, sum(counts[tried:])
        tried = len(counts)
        assert slice_names <= SLICE_NAMES_MAX
        assert slice_letters * expression.program_size <= SLICE_STEPS_MAX + one_name
        assert all(expression.matches(name) for name in found)
    assert tried == len(names)


def _counted(names: list[str], counts: list[int]):
    for name in names:
        counts.append(len(name))
        yield name


@given(
    st.text(alphabet="ab.|()*+?[]^$-", max_size=10),
    st.lists(st.text(alphabet="ab-", max_size=5), max_size=5),
)
def test_an_expression_that_both_understand_means_what_it_means_in_python(
    text: str, names: list[str]
):
    if expression_problem(text) is not None:
        return
    try:
        other = re.compile(text)
    except re.error:
        return
    for name in names:
        assert Expression(text).matches(name) == bool(other.fullmatch(name))


@pytest.mark.parametrize("text", ["a{99999999999}", "a{1,99999999999}", "(ab){999999999999,}"])
def test_a_repetition_whose_number_overflows_is_refused_and_not_taken_for_text(text: str):
    assert "repetition" in (expression_problem(text) or "")


@pytest.mark.parametrize("text", [r"a\{99999999999}", "a{999}", "{00000000000}"])
def test_what_only_looks_like_a_huge_repetition_is_taken(text: str):
    assert expression_problem(text) is None
