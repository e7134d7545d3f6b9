"""Random walks of members of both protocols through a coordinator: who holds what."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.consumer_groups import ConsumerWorld
from tests.support.driven_members import Driven
from tests.support.groups import SESSION_MS, TOPIC

from holdfast.groups.commits import CommitDecision
from holdfast.groups.rules import GroupRules, MigrationPolicy

PARTITIONS = 5
MEMBERS_MAX = 4
TICK_S = SESSION_MS / 1000 / 4
STEPS = 250
WEIGHTS = {
    "step": 60,
    "finish": 12,
    "commit": 6,
    "join": 4,
    "other": 2,
    "leave": 1,
    "die": 1,
    "crash": 1,
    "grow": 1,
    "lose_request": 3,
    "lose_answer": 5,
    "pass_time": 2,
}
BOTH, OTHER = ("consumer", "classic"), {"consumer": "classic", "classic": "consumer"}


class Walked:
    """A group, and who is alive in it."""

    def __init__(self, protocol: str, *, is_mixed: bool) -> None:
        rules = GroupRules(
            group_consumer_migration_policy=MigrationPolicy.BIDIRECTIONAL,
            group_initial_rebalance_delay_ms=0,
        )
        self.world = ConsumerWorld(rules)
        self.partitions = PARTITIONS
        self.world.have({TOPIC: self.partitions})
        self.protocol = protocol
        self.is_mixed = is_mixed
        self.alive: list[Driven] = []
        self.silent: list[Driven] = []

    def do(self, operation: str, chosen: int) -> None:
        member = self.alive[chosen % len(self.alive)] if self.alive else None
        match operation:
            case "join" if len(self.alive) < MEMBERS_MAX:
                self.alive.append(Driven(self.world, self.protocol))
            case "other" if self.is_mixed and len(self.alive) < MEMBERS_MAX:
                self.alive.append(Driven(self.world, OTHER[self.protocol]))
            case "grow":
                self.partitions += 1
                self.world.have({TOPIC: self.partitions})
            case "crash":
                self.world.crash() if chosen % 2 else self.world.crash_onto_a_snapshot()
                for client in self.alive:
                    client.break_connection()
            case "step" if member is not None:
                member.step()
            case "finish" if member is not None:
                member.finish()
            case "lose_request" if member is not None:
                member.lose_request()
            case "lose_answer" if member is not None:
                member.lose_answer()
            case "pass_time":
                self.pass_time()
            case "commit" if self.silent:
                self.commit(self.silent[chosen % len(self.silent)])
            case "leave" if member is not None:
                self.alive.remove(member)
                member.leave()
            case "die" if member is not None:
                self.alive.remove(member)
                self.silent.append(member)
            case _:
                pass
        self.check()

    def commit(self, member: Driven) -> None:
        """One that fell silent commits what it thinks it holds: nothing that another has moves."""
        for number in member.numbers:
            judged = self.world.commit(member.core.member_id, member.core.epoch, {number: 1})
            if any(number in other.numbers for other in self.alive):
                assert not (isinstance(judged, CommitDecision) and judged.accepted)

    def check(self) -> None:
        numbers = [n for member in self.alive for n in member.numbers]
        assert len(numbers) == len(set(numbers)), [
            (m.core.member_id, m.numbers, m.is_revoking) for m in self.alive
        ]
        for member in self.alive:
            assert member.held == member.core.held.names
            assert member.refused is None

    def pass_time(self) -> None:
        """So long that those who died are fenced out; the others keep to their seconds."""
        for _ in range(6):
            for member in self.alive:
                if member.give_up_until < self.world.now + 2 * TICK_S:
                    member.finish()
                member.step()
                self.check()
            self.world.wait(TICK_S)
            self.check()

    def come_to_rest(self) -> None:
        for turn in range(80):
            for member in self.alive:
                member.step()
                self.check()
                member.step()
                member.finish()
                self.check()
                if turn % 8 == 0:
                    member.look()
            self.world.wait(TICK_S)
            self.check()


@pytest.mark.parametrize("is_mixed", [False, True])
@pytest.mark.parametrize("protocol", BOTH)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32))
def test_no_partition_is_held_by_two_and_at_rest_each_by_one(
    protocol: str, is_mixed: bool, seed: int
):
    walked, chance = Walked(protocol, is_mixed=is_mixed), random.Random(seed)
    names, weights = list(WEIGHTS), list(WEIGHTS.values())
    for _ in range(STEPS):
        walked.do(chance.choices(names, weights)[0], chance.randrange(60))
        walked.world.wait(0.01)
    if not walked.alive:
        walked.alive.append(Driven(walked.world, protocol))
    walked.come_to_rest()
    numbers = sorted(n for member in walked.alive for n in member.numbers)
    assert numbers == list(range(walked.partitions))
    assert all(member.core.state == "stable" for member in walked.alive)
    sizes = [len(member.numbers) for member in walked.alive]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("protocol", BOTH)
def test_what_a_member_keeps_is_not_touched_when_another_joins(protocol: str):
    walked = Walked(protocol, is_mixed=False)
    first, second = Driven(walked.world, protocol), Driven(walked.world, protocol)
    walked.alive = [first]
    walked.come_to_rest()
    assert first.numbers == list(range(PARTITIONS))
    walked.alive.append(second)
    kept: set[int] = set(first.numbers)
    for _ in range(60):
        first.step()
        kept &= set(first.numbers)
        first.finish()
        second.step()
        walked.world.wait(TICK_S / 4)
    assert sorted(kept & set(first.numbers)) == first.numbers
    assert len(first.numbers) == 3
    assert sorted(first.numbers + second.numbers) == list(range(PARTITIONS))
    assert first.lost == []
