"""Seeds of the simulation that once failed, by what they found. See docs/how-to/replay-a-seed.md.

The schedule of a seed changes when the code under it does, so each of these bugs is also held by
a test of its own near the code; the seeds stay because they cost little.
"""

import pytest
from simulation.clients.coordination import Mode, Workload
from simulation.seed import simulate

FOUND = {
    1: "a waiter that was cancelled took the group's future with it, and the writer ended",
    14: "a fetch skipped records below a log start that was decided but not durable",
    38: "a fetch skipped records below a log start that was decided but not durable",
    216: "a probe took a deleted number of its own for proof that the claim was the newest",
    277: "a stale owner answered out of range for a record that was there",
    492: "a probe took a deleted number of its own for proof that the claim was the newest",
    1642: "records were served above the high watermark of the same answer",
    1997: "records were served above the high watermark of the same answer",
    11040: "a deleted topic came back empty for a broker whose control claim was out of date",
    2787: "records were served above the high watermark of the same answer",
    10188: "a finished probe that proved nothing was awaited for ever, without giving way",
    10979: "a probe took a deleted number of its own for proof that the claim was the newest",
}

FOUND_IN_ANY = {
    4887: "a topic that came back after its deletion was taken for the one that was deleted",
    6707: "the end of a lane's first release was also taken for the end of its second",
    13671: "a report with a byte that is no UTF-8 ended the exchange of reports",
    51615: "the end of a lane was reported as unread where its process ended at the same moment",
}
"""Played as the seed says, with the workload and the brokers that it draws."""


@pytest.mark.parametrize("seed", FOUND)
def test_a_seed_that_once_failed_does_not_fail_again(seed: int):
    outcome = simulate(seed, workload=Workload.RECORDS, mode=Mode.ALONE)
    assert not outcome.violations, (FOUND[seed], outcome.violations)


@pytest.mark.parametrize("seed", FOUND_IN_ANY)
def test_a_seed_of_any_workload_does_not_fail_again(seed: int):
    outcome = simulate(seed)
    assert not outcome.violations, (FOUND_IN_ANY[seed], outcome.violations)
