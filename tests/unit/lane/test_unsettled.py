"""Names with facts that are not durable yet."""

from holdfast.lane.unsettled import Unsettled


def test_a_name_is_settled_when_all_its_facts_are_durable():
    unsettled = Unsettled()
    unsettled.decided("a")
    unsettled.decided("a")
    unsettled.decided("b")
    unsettled.published("a")
    assert "a" in unsettled
    unsettled.published("a")
    assert "a" not in unsettled
    assert "b" in unsettled


def test_what_was_published_without_being_decided_leaves_nothing_behind():
    unsettled = Unsettled()
    unsettled.published("a")
    assert "a" not in unsettled
    unsettled.decided("a")
    assert "a" in unsettled
