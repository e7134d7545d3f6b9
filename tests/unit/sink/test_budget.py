"""The byte budget: one sum over all holders."""

from holdfast.sink.budget import Budget


def test_what_is_free_is_what_no_holder_has():
    budget = Budget(100)
    budget.hold("a", 30)
    budget.hold("b", 50)
    assert budget.free == 20
    budget.hold("a", 10)
    assert (budget.held, budget.free, budget.peak) == (60, 40, 80)


def test_a_holder_that_lets_go_is_forgotten():
    budget = Budget(100)
    budget.hold("a", 30)
    budget.hold("a", 0)
    budget.hold("b", 0)
    assert (budget.held, len(budget)) == (0, 0)


def test_more_than_the_limit_leaves_nothing_free():
    budget = Budget(100)
    budget.hold("a", 130)
    assert budget.free == 0
