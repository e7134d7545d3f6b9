"""Parts of a classic group's generation: the choice of its protocol, the responses to its members.

Pure functions over members.
"""

from collections.abc import Iterable, Mapping

from holdfast.groups.facts import ClassicMember
from holdfast.groups.state import Generation
from holdfast.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember


def names_of(member: ClassicMember) -> list[str]:
    return [name for name, _ in member.protocols]


def common_protocols(members: Iterable[ClassicMember]) -> set[str]:
    """Return the protocols that all members support."""
    common: set[str] | None = None
    for member in members:
        names = set(names_of(member))
        common = names if common is None else common & names
    return common or set()


def chosen_protocol(members: Mapping[str, ClassicMember]) -> str | None:
    """Return the winner of a vote: each member votes for the best protocol that all support.

    Ties go to the protocol that got its first vote earlier.
    """
    common = common_protocols(members.values())
    votes: dict[str, int] = {}
    for member in members.values():
        favourite = next((name for name in names_of(member) if name in common), None)
        if favourite is not None:
            votes[favourite] = votes.get(favourite, 0) + 1
    return max(votes, key=lambda name: votes[name]) if votes else None


def metadata_of(member: ClassicMember, protocol_name: str | None) -> bytes:
    return next((data for name, data in member.protocols if name == protocol_name), b"")


def join_response(
    generation: Generation, member_id: str, *, skip_assignment: bool = False
) -> JoinGroupResponse:
    """Return a member's response to its join; only the leader's response lists the members."""
    is_leader = member_id == generation.leader
    return JoinGroupResponse(
        generation_id=generation.number,
        protocol_type=generation.protocol_type,
        protocol_name=generation.protocol_name or "",
        leader=generation.leader or "",
        skip_assignment=skip_assignment and is_leader,
        member_id=member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=metadata_of(member, generation.protocol_name),
            )
            for member in generation.members.values()
        ]
        if is_leader
        else [],
    )
