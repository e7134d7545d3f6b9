"""Seeds that once found a bug, by the name of what they found.

A seed's schedule shifts whenever the code under it does, so a seed is kept for what it may find
again, and the bug itself has a test of its own beside the code that was wrong.
"""

import pytest

from holdfast.verify.broker_process import BrokerProcess
from holdfast.verify.run import run_seed

SEEDS = {
    "a decided but not yet durable log start hid records from a fetch": (19, 81, 114),
    "a waiter that was cancelled took the group's future with it": (1,),
    "a probe found its own landed, deleted object absent and proved a dead claim": (10979,),
    "a finished probe that proved nothing was awaited for ever without giving way": (10188,),
    "records were served above the high watermark of the same answer": (256, 10340),
    "an owner of the data lanes never noticed that the control lane had moved on": (8, 30),
}


@pytest.mark.parametrize("name", sorted(SEEDS))
def test_the_seed_finds_nothing_any_more(name: str):
    for seed in SEEDS[name]:
        assert not run_seed(seed, BrokerProcess).violations, f"seed {seed}: {name}"
