"""Random walks of members of both protocols through one group: who owns what, at any time."""

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.classic_members import COOPERATIVE, EAGER, Classic
from tests.support.consumer_groups import Client, ConsumerWorld
from tests.support.groups import GROUP, SESSION_MS, TOPIC, TOPIC_ID

from holdfast.groups.commits import CommitDecision
from holdfast.groups.rules import GroupRules, MigrationPolicy
from holdfast.identifiers import PartitionId

PARTITIONS = 5
MEMBERS_MAX = 4
TICK_S = SESSION_MS / 1000 / 4
OPERATIONS = ("step", "step", "step", "step", "commit", "classic", "new", "leave", "die", "crash")

Walk = list[tuple[str, int]]


class Walked:
    """A group, who is alive in it, and what each believes to own."""

    def __init__(self, assignor: str, policy: MigrationPolicy) -> None:
        self.world = ConsumerWorld(GroupRules(group_consumer_migration_policy=policy))
        self.world.have({TOPIC: PARTITIONS})
        self.assignor = assignor
        self.alive: list[Classic | Client] = []
        self._names = itertools.count()

    def do(self, operation: str, chosen: int) -> None:
        member = self.alive[chosen % len(self.alive)] if self.alive else None
        match operation:
            case "classic" if len(self.alive) < MEMBERS_MAX:
                self.alive.append(Classic(self.world, self.assignor))
            case "new" if len(self.alive) < MEMBERS_MAX:
                self.alive.append(Client(self.world, f"new-{next(self._names)}"))
            case "crash":
                waiting = [m for m in self.alive if isinstance(m, Classic)]
                self.world.crash() if chosen % 2 else self.world.crash_onto_a_snapshot()
                for client in waiting:  # their connections broke
                    if client.joining is not None or client.syncing is not None:
                        client.syncing = None
                        client.join()
            case "step" if member is not None:
                self.step(member)
            case "commit" if member is not None:
                self.commit(member, chosen % PARTITIONS)
            case "leave" if member is not None:
                self.alive.remove(member)
                member.leave()
            case "die" if member is not None:
                self.alive.remove(member)
            case _:
                pass
        self.check()

    def step(self, member: Classic | Client) -> None:
        if isinstance(member, Client):
            member.beat()
        else:
            member.step()

    def commit(self, member: Classic | Client, number: int) -> None:
        """Accepted is only what is the member's own, or nobody's."""
        epoch = member.epoch if isinstance(member, Client) else member.generation
        group = self.world.state.groups.get(GROUP)
        before = self.world.committed(number) if group is not None else None
        judged = self.world.commit(member.member_id, epoch, {number: len(self.world.facts)})
        if not member.member_id or group is None or group.consumers is None:
            return
        others = [m for m in self.alive if m is not member and number in m.numbers]
        if others:
            assert not (isinstance(judged, CommitDecision) and judged.accepted)
            assert self.world.committed(number) == before

    def check(self) -> None:
        """No partition has two owners among those who are alive."""
        numbers = [n for member in self.alive for n in member.numbers]
        assert len(numbers) == len(set(numbers)), [(m.member_id, m.numbers) for m in self.alive]
        group = self.world.coordinator.consumer(GROUP)
        if group is not None:
            owners = group.durable.owners
            for member in self.alive:
                for number in member.numbers:
                    assert owners.get(PartitionId(TOPIC_ID, number)) == member.member_id

    def come_to_rest(self) -> None:
        """Everybody steps, and time passes, as long as it takes for the silent to be fenced out."""
        for _ in range(80):
            for member in list(self.alive):
                self.step(member)
                self.step(member)
                self.check()
            self.world.wait(TICK_S)
            self.check()


@pytest.mark.parametrize("policy", [MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE])
@pytest.mark.parametrize("assignor", [EAGER, COOPERATIVE])
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(walk=st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 59)), max_size=60))
def test_no_partition_has_two_owners_and_at_rest_each_has_one(
    assignor: str, policy: MigrationPolicy, walk: Walk
):
    walked = Walked(assignor, policy)
    for operation, chosen in walk:
        walked.do(operation, chosen)
        walked.world.wait(0.01)
    if not walked.alive:
        walked.alive.append(Classic(walked.world, assignor))
    walked.come_to_rest()
    numbers = sorted(n for member in walked.alive for n in member.numbers)
    assert numbers == list(range(PARTITIONS))
    has_new = any(isinstance(member, Client) for member in walked.alive)
    if has_new:
        assert walked.world.group().phase.value == "Stable"
    elif policy is MigrationPolicy.BIDIRECTIONAL:
        assert walked.world.phase() == "Stable"
