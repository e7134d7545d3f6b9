"""The check of a cold read has teeth: each way to harm a log is named, and a sound log passes."""

from array import array

import pytest
from tests.chaos.ledger import NUMBER_BITS, Ledger, check_cold, identity_of, value_of


def sound() -> tuple[Ledger, list[int]]:
    """Two producers take turns on one partition; the last record of each was never acked."""
    ledger = Ledger(producers=["one", "two"], partitions=1)
    cold = []
    for number in range(10):
        for producer in (0, 1):
            assert ledger.send(producer, 0) == number
            cold.append(producer << NUMBER_BITS | number)
            if number < 9:
                ledger.acked(producer, 0, number, len(cold) - 1)
    return ledger, cold


def problems(ledger: Ledger, cold: list[int]) -> str:
    return "; ".join(check_cold(ledger, 0, array("q", cold)))


def test_a_sound_log_has_no_problem_whether_or_not_the_unknown_records_landed():
    ledger, cold = sound()
    assert problems(ledger, cold) == ""
    assert problems(ledger, cold[:-1]) == ""
    assert problems(ledger, cold[:-2]) == ""


@pytest.mark.parametrize(
    ("harm", "word"),
    [
        (lambda cold: cold[:-3], "lost"),
        (lambda cold: [*cold[:4], *cold[6:]], "moved"),
        (lambda cold: [*cold, cold[0]], "doubled"),
        (lambda cold: [*cold, 99 << NUMBER_BITS], "phantom"),
        (lambda cold: [*cold, 1 << NUMBER_BITS | 77], "phantom"),
        (lambda cold: [*cold[:-2], cold[-1], cold[-1]], "doubled"),
        (lambda cold: [cold[2], cold[1], cold[0], *cold[3:]], "out of order"),
    ],
)
def test_each_harm_is_named(harm, word):
    ledger, cold = sound()
    assert word in problems(ledger, harm(cold))


def test_a_value_carries_its_identity():
    assert identity_of(value_of(3, 2**39)) == 3 << NUMBER_BITS | 2**39


def test_the_acked_end_is_that_of_the_producer_that_is_furthest():
    ledger, _ = sound()
    assert ledger.acked_end(0) == 18
    assert ledger.acked_count == 18
    assert ledger.sent == 20
