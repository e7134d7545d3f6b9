"""Every named bad input, family by family; after each family others are as well off as before."""

import pytest
from tests.hostile.cases import bombs, frames, headers, lengths, produce, reads, topics
from tests.hostile.conftest import MEMORY_GROWTH_MAX

FAMILIES = {
    "frames": frames.CASES,
    "headers": headers.CASES,
    "lengths": lengths.CASES,
    "produce": produce.CASES,
    "bombs": bombs.CASES,
    "reads": reads.CASES,
    "topics": topics.CASES,
}
AFTER = "nobody else noticed"
TABLE = [
    pytest.param(family, case, id=f"{family}-{case}")
    for family, cases in FAMILIES.items()
    for case in (*cases, AFTER)
]


@pytest.mark.parametrize(("family", "case"), TABLE)
def test_a_bad_input_harms_its_own_connection_at_most(broker, family, case):
    if case == AFTER:
        broker.use_as_a_neighbour()
        assert broker.bugs_in_the_log() == []
        grown = broker.process.process.memory_bytes() - broker.memory_bytes
        assert grown < MEMORY_GROWTH_MAX, f"{grown >> 20} MiB more after {family}"
    else:
        broker.hold(case)


def test_there_are_as_many_named_cases_as_promised():
    names = [f"{family} {case.name}" for family, cases in FAMILIES.items() for case in cases]
    assert len(names) == len(set(names))
    assert len(names) >= 300
