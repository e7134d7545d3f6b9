"""Large classic groups: what a member costs does not grow with its group."""

import random

import pytest
from tests.support.groups import INITIAL_DELAY_S, World

from holdfast.groups.classic.roster import Joining, Roster
from holdfast.groups.facts import ClassicMember
from holdfast.groups.outbox import Token

MEMBERS = 300


def test_joins_look_at_the_members_that_join_and_at_no_others(monkeypatch: pytest.MonkeyPatch):
    """Each join looked at all members: 8,000 of them kept other clients waiting for 0.6 s."""
    looked_at = 0
    protocols = ClassicMember.protocols

    def counted(member: ClassicMember) -> object:
        nonlocal looked_at
        looked_at += 1
        return protocols.__get__(member, ClassicMember)

    monkeypatch.setattr(ClassicMember, "protocols", property(counted))
    world = World()
    tokens = [world.join(world.new_member()) for _ in range(MEMBERS)]
    assert looked_at <= 10 * MEMBERS
    monkeypatch.undo()
    world.wait(INITIAL_DELAY_S)
    leaders = [token for token in tokens if world.joined(token).members]
    assert len(leaders) == 1
    assert len(world.joined(leaders[0]).members) == MEMBERS


def member(chance: random.Random, member_id: str, instance_id: str | None) -> ClassicMember:
    names = chance.sample("abcd", chance.randint(1, 4))
    timeout_ms = chance.randint(1, 5)
    return ClassicMember(
        member_id, instance_id, "c", "/h", 10_000, timeout_ms, [(name, b"") for name in names]
    )


@pytest.mark.parametrize("seed", range(20))
def test_what_a_roster_counts_is_what_a_look_at_all_members_finds(seed: int):
    chance = random.Random(seed)
    roster = Roster()
    for step in range(300):
        i = chance.randrange(12)
        instance_id = f"i{i}" if i % 3 == 0 else None
        match chance.randrange(5):
            case 0:
                roster.withdraw(f"m{i}")
            case 1 if f"m{i}" in roster.here:
                roster.remove(f"m{i}")
            case 2 if step % 40 == 0:
                kept = [*roster.joining.values()][: chance.randrange(3)]
                roster = Roster([each.member for each in roster.joining.values()], kept)
            case _:
                kind = chance.choice(["consumer", "connect"])
                roster.enter(Joining(Token(step), member(chance, f"m{i}", instance_id), kind))
        _check(roster, chance)


def _check(roster: Roster, chance: random.Random) -> None:
    waiting = {i: joining.member for i, joining in roster.joining.items()}
    present = roster.here | waiting
    everywhere = [*roster.here.values(), *waiting.values()]
    longest = max((each.rebalance_timeout_ms for each in everywhere), default=0)
    assert roster.longest_rebalance_ms() == longest
    assert roster.is_complete() == (roster.here.keys() <= waiting.keys())
    assert roster.joining_types() == {each.protocol_type for each in roster.joining.values()}
    assert roster.members() == present
    holders = {each.instance_id: each.member_id for each in everywhere if each.instance_id}
    for i in range(12):
        assert roster.holder(f"i{i}") == holders.get(f"i{i}")
    left_out = {f"m{chance.randrange(12)}", f"m{chance.randrange(12)}", ""}
    others = [each for i, each in present.items() if i not in left_out]
    assert roster.count_without(left_out) == len(others)
    new = member(chance, "new", None)
    shared = set.intersection(*({name for name, _ in each.protocols} for each in [new, *others]))
    assert roster.share_protocol(new, left_out) == bool(shared)
