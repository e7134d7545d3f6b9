"""Tokens: good for the very assignment that made them, and remembered no longer."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.sink.ownership import Ownership, Token

A = TopicPartition("orders", 0)
B = TopicPartition("orders", 1)


def test_a_token_is_good_until_its_partition_is_released():
    ownership = Ownership()
    token = ownership.take(A)
    assert ownership.holds(token)
    ownership.release([A])
    assert not ownership.holds(token)


def test_a_token_of_an_earlier_assignment_stays_worthless_when_the_partition_comes_back():
    ownership = Ownership()
    old = ownership.take(A)
    ownership.release([A])
    new = ownership.take(A)
    assert ownership.holds(new)
    assert not ownership.holds(old)


def test_releasing_one_partition_leaves_the_others():
    ownership = Ownership()
    a, b = ownership.take(A), ownership.take(B)
    ownership.release([A])
    assert not ownership.holds(a)
    assert ownership.holds(b)


@given(st.lists(st.tuples(st.sampled_from([A, B]), st.booleans()), max_size=50))
def test_nothing_grows_with_rebalances_and_at_most_one_token_of_a_partition_is_good(
    steps: list[tuple[TopicPartition, bool]],
):
    ownership = Ownership()
    given_out: list[Token] = []
    for where, is_taken in steps:
        if is_taken:
            given_out.append(ownership.take(where))
        else:
            ownership.release([where])
        good = [token.where for token in given_out if ownership.holds(token)]
        assert len(good) == len(set(good)) == len(ownership) <= 2
