"""One classic group: join, sync, heartbeat, leave and timeouts.

Pure: time is passed in, as seconds on a clock that never goes back. Owns what is not durable: which
members wait to join or to sync, when sessions end, which members have left since the generation was
formed. A new coordinator starts from the durable generation, and all sessions start again.
"""

import enum
from collections.abc import Callable
from typing import NamedTuple

from holdfast.groups.classic.generation import chosen_protocol, join_response, metadata_of
from holdfast.groups.classic.roster import Joining, Roster
from holdfast.groups.deadlines import NEVER, MemberDeadlines
from holdfast.groups.facts import (
    ClassicMember,
    GenerationAssigned,
    GenerationFormed,
    StaticMemberReplaced,
)
from holdfast.groups.outbox import Outbox, Token
from holdfast.groups.rules import GroupRules
from holdfast.groups.state import Generation, GroupsState
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.join_group import JoinGroupResponse
from holdfast.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


class GroupPhase(enum.Enum):
    """The state of a classic group; the names are Kafka's."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


class _Window(NamedTuple):
    """The time in which the next generation gathers its members."""

    opened_at: float
    ends_at: float
    is_first: bool
    """The group was empty: more members are likely to come, so the window lasts its whole time."""


class ClassicGroup:
    """The state of one group that is not durable, on top of its durable generation."""

    def __init__(
        self,
        group_id: str,
        state: GroupsState,
        outbox: Outbox,
        rules: GroupRules,
        now: float,
        now_ms: Callable[[], int],
    ) -> None:
        self.group_id = group_id
        self._state = state
        self._outbox = outbox
        self._rules = rules
        self._now_ms = now_ms
        self._syncing: dict[str, Token] = {}
        self._sessions = MemberDeadlines()
        self._promised = MemberDeadlines()
        """Member ids that were given out, and until when the group waits for them (KIP-394)."""
        self._window: _Window | None = None
        self._sync_ends_at = NEVER
        generation = self.generation
        self._roster = Roster(generation.members.values() if generation is not None else ())
        for member in self.members().values():
            self._sessions[member.member_id] = now + member.session_timeout_ms / 1000
        if generation is not None and generation.epochs is not None:
            self._gather(now)

    @property
    def generation(self) -> Generation | None:
        """The durable generation; None if the group never had one."""
        group = self._state.groups.get(self.group_id)
        return group.generation if group is not None else None

    @property
    def phase(self) -> GroupPhase:
        if self._window is not None:
            return GroupPhase.PREPARING_REBALANCE
        generation = self.generation
        if generation is None or not generation.members:
            return GroupPhase.EMPTY
        is_assigned = generation.assignments is not None
        return GroupPhase.STABLE if is_assigned else GroupPhase.COMPLETING_REBALANCE

    def members(self) -> dict[str, ClassicMember]:
        """Return the members of the durable generation that are still here. Do not change it."""
        return self._roster.here

    def _is_member(self, member_id: str) -> bool:
        return member_id in self._roster.here

    def knows(self, member_id: str) -> bool:
        return member_id in self._roster

    def has_promised(self, member_id: str) -> bool:
        return member_id in self._promised

    def member_problem(self, member_id: str, instance_id: str | None) -> ErrorCode | None:
        """Return why a request does not come from a member of this group; None if it does."""
        if instance_id is not None:
            holder = self._roster.holder(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            return None if holder == member_id else ErrorCode.FENCED_INSTANCE_ID
        return None if self.knows(member_id) else ErrorCode.UNKNOWN_MEMBER_ID

    @property
    def is_idle(self) -> bool:
        """True if the group has no members, and none is about to join."""
        return self.phase is GroupPhase.EMPTY and not self._promised

    def all_members(self) -> dict[str, ClassicMember]:
        """Return the members of the generation and those joining the next, as they last joined."""
        return self._roster.members()

    def dissolve(self) -> None:
        """Make waiting members join again: the group continues under another protocol."""
        error = ErrorCode.REBALANCE_IN_PROGRESS
        for joining in self._roster.joining.values():
            self._refuse_join(joining, error)
        for token in self._syncing.values():
            self._outbox.answer(token, SyncGroupResponse(error_code=error))

    def promise(self, member_id: str, session_timeout_ms: int, now: float) -> None:
        """Note that a new member was given its id, and is to join with it."""
        self._promised[member_id] = now + session_timeout_ms / 1000

    def join_problem(self, member: ClassicMember, protocol_type: str) -> ErrorCode | None:
        """Return why a member cannot be in one generation with the others; None if it can."""
        roster = self._roster
        if not member.protocols or not protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        holder = roster.holder(member.instance_id) if member.instance_id is not None else None
        replaced = {member.member_id, holder or ""}
        others = roster.count_without(replaced)
        if not others:
            return None
        if others >= self._rules.group_max_size and not self.knows(member.member_id):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        types = roster.joining_types()
        if self.generation is not None and self.members():
            types.add(self.generation.protocol_type)
        if types != {protocol_type} or not roster.share_protocol(member, replaced):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return None

    def join(self, joining: Joining, now: float, *, version: int) -> None:
        """Let a member join whose id and protocols have been checked."""
        member = joining.member
        holder = self._roster.holder(member.instance_id) if member.instance_id is not None else None
        if holder is not None and holder != member.member_id:
            self._replace_static(holder, joining, now, version=version)
            return
        generation = self.generation
        known = self.members().get(member.member_id)
        is_unchanged = known is not None and known.protocols == member.protocols
        if generation is not None and is_unchanged:
            if self.phase is GroupPhase.COMPLETING_REBALANCE:  # its answer was lost
                self._answer_join(joining.token, generation, member.member_id, now)
                return
            if self.phase is GroupPhase.STABLE and member.member_id != generation.leader:
                self._answer_join(joining.token, generation, member.member_id, now)
                return
        self._enter(joining, now)

    def _answer_join(
        self, token: Token, generation: Generation, member_id: str, now: float
    ) -> None:
        self.touch(member_id, now)
        self._outbox.answer(token, join_response(generation, member_id))

    def _enter(self, joining: Joining, now: float) -> None:
        """Make a member wait for the next generation, and open its window if it is not open."""
        member_id = joining.member.member_id
        self._promised.pop(member_id, None)
        before = self._roster.joining.get(member_id)
        if before is not None:
            self._refuse_join(before, ErrorCode.REBALANCE_IN_PROGRESS)
        self._roster.enter(joining)
        self._gather(now, extends=before is None)
        self._complete_if_all_here(now)

    def _gather(self, now: float, *, extends: bool = False) -> None:
        """Open the window of the next generation, or extend it for a member that just came."""
        window = self._window
        if window is None:
            for member_id, token in self._syncing.items():
                error = ErrorCode.REBALANCE_IN_PROGRESS
                self._outbox.answer(token, SyncGroupResponse(error_code=error))
                self.touch(member_id, now)  # it was not silent, it waited
            self._syncing.clear()
            self._sync_ends_at = NEVER
            is_first = not self.members()
            delay_s = self._rules.group_initial_rebalance_delay_ms / 1000
            lasts_s = min(delay_s, self._rebalance_s()) if is_first else self._rebalance_s()
            self._window = _Window(now, now + lasts_s, is_first)
        elif extends and window.is_first:
            delay_s = self._rules.group_initial_rebalance_delay_ms / 1000
            latest = window.opened_at + self._rebalance_s()
            self._window = window._replace(ends_at=min(now + delay_s, latest))

    def _rebalance_s(self) -> float:
        return self._roster.longest_rebalance_ms() / 1000

    def _complete_if_all_here(self, now: float) -> None:
        window = self._window
        if window is None or (window.is_first and self._roster.joining):
            return
        if not self._promised and self._roster.is_complete():
            self._complete(now)

    def _complete(self, now: float) -> None:
        """Form the next generation of the members that are here; static members may be late."""
        waiting = self._roster.joining
        kept = {
            i: m
            for i, m in self.members().items()
            if i not in waiting and m.instance_id is not None and now < self._sessions[i]
        }
        if kept and not waiting and self._window is not None:
            # No member that could lead is here: wait as long again.
            self._window = self._window._replace(ends_at=now + self._rebalance_s())
            return
        members = kept | {i: joining.member for i, joining in waiting.items()}
        before = self.generation
        if not members and (before is None or not before.members):
            self._window = None  # all members that came have left again
            return
        leader = before.leader if before is not None and before.leader in waiting else None
        types = [j.protocol_type for j in waiting.values()]
        self._outbox.decide(
            GenerationFormed(
                self.group_id,
                before.number + 1 if before is not None else 1,
                types[0] if types else before.protocol_type if before is not None else "",
                chosen_protocol(members),
                leader or next(iter(waiting), None),
                list(members.values()),
                self._now_ms(),
            )
        )
        self._begin_generation(now)

    def _begin_generation(self, now: float) -> None:
        generation = self.generation
        waiting = self._roster.joining
        self._roster = Roster(generation.members.values() if generation is not None else ())
        self._window = None
        self._sessions = MemberDeadlines()
        self._sync_ends_at = NEVER
        if generation is None or not generation.members:
            return
        for member in generation.members.values():
            self._sessions[member.member_id] = now + member.session_timeout_ms / 1000
        self._sync_ends_at = now + self._rebalance_s()
        for member_id, joining in waiting.items():
            self._outbox.answer(joining.token, join_response(generation, member_id))

    def _replace_static(self, holder: str, joining: Joining, now: float, *, version: int) -> None:
        """Let the new process of a static member take over from its previous one."""
        before = self._roster.withdraw(holder)
        if before is not None:
            self._refuse_join(before, ErrorCode.FENCED_INSTANCE_ID)
        token = self._syncing.pop(holder, None)
        if token is not None:
            error = ErrorCode.FENCED_INSTANCE_ID
            self._outbox.answer(token, SyncGroupResponse(error_code=error))
        generation, old = self.generation, self.members().get(holder)
        if generation is None or old is None:
            self._enter(joining, now)
            return
        was_leader = generation.leader == holder
        member = joining.member
        self._outbox.decide(StaticMemberReplaced(self.group_id, holder, member))
        ids = {member.member_id if i == holder else i for i in self.members()}
        here = [m for i, m in generation.members.items() if i in ids]
        self._roster = Roster(here, self._roster.joining.values())
        self._sessions.pop(holder, None)
        self.touch(member.member_id, now)
        protocol = generation.protocol_name
        is_same = metadata_of(old, protocol) == metadata_of(member, protocol)
        still_chosen = chosen_protocol(self.members()) == protocol
        if self.phase is not GroupPhase.STABLE or not (is_same and still_chosen):
            self._enter(joining, now)
            return
        response = join_response(generation, member.member_id, skip_assignment=True)
        if was_leader and version < 9:
            # Its assignment stands: it must not believe that it leads, and make a new one.
            response.leader, response.members = holder, []
        self._outbox.answer(joining.token, response)

    def _refuse_join(self, joining: Joining, error: ErrorCode) -> None:
        member_id = joining.member.member_id
        self._outbox.answer(joining.token, JoinGroupResponse(error_code=error, member_id=member_id))

    def sync(self, request: SyncGroupRequest, token: Token, now: float) -> None:
        """Take the assignments from the leader, and answer each member with its own."""
        problem = self._sync_problem(request)
        generation = self.generation
        if problem is not None or generation is None:
            error = problem or ErrorCode.UNKNOWN_MEMBER_ID
            self._outbox.answer(token, SyncGroupResponse(error_code=error))
            return
        member_id = request.member_id
        self.touch(member_id, now)
        before = self._syncing.pop(member_id, None)
        if before is not None:
            error = ErrorCode.REBALANCE_IN_PROGRESS
            self._outbox.answer(before, SyncGroupResponse(error_code=error))
        self._syncing[member_id] = token
        if generation.assignments is None and member_id == generation.leader:
            given = {item.member_id: bytes(item.assignment) for item in request.assignments}
            assignments = [(i, given.get(i, b"")) for i in generation.members]
            self._outbox.decide(GenerationAssigned(self.group_id, generation.number, assignments))
        self._answer_syncs(now)

    def _sync_problem(self, request: SyncGroupRequest) -> ErrorCode | None:
        problem = self.member_problem(request.member_id, request.group_instance_id)
        generation = self.generation
        if problem is not None or generation is None:
            return problem or ErrorCode.UNKNOWN_MEMBER_ID
        if request.member_id not in generation.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if request.generation_id != generation.number_of(request.member_id):
            return ErrorCode.ILLEGAL_GENERATION
        for said, known in (
            (request.protocol_type, generation.protocol_type),
            (request.protocol_name, generation.protocol_name),
        ):
            if said is not None and said != known:
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.phase is GroupPhase.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return None

    def _answer_syncs(self, now: float) -> None:
        generation = self.generation
        if generation is None or generation.assignments is None:
            return
        for member_id, token in self._syncing.items():
            self._outbox.answer(
                token,
                SyncGroupResponse(
                    protocol_type=generation.protocol_type,
                    protocol_name=generation.protocol_name,
                    assignment=generation.assignments.get(member_id, b""),
                ),
            )
            self.touch(member_id, now)  # it was not silent, it waited
        self._syncing.clear()
        self._sync_ends_at = NEVER

    def heartbeat(self, member_id: str, generation: int, now: float) -> ErrorCode:
        """Take the heartbeat of a member that was found in the group."""
        current = self.generation
        if current is None or not self._is_member(member_id):
            # It waits for its first generation, so it has no session yet.
            return ErrorCode.REBALANCE_IN_PROGRESS
        if generation != current.number_of(member_id):
            return ErrorCode.ILLEGAL_GENERATION
        self.touch(member_id, now)
        if self.phase is GroupPhase.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def touch(self, member_id: str, now: float) -> None:
        """Restart the session of a member that is alive."""
        generation = self.generation
        if generation is not None and self._is_member(member_id):
            session_ms = generation.members[member_id].session_timeout_ms
            self._sessions[member_id] = now + session_ms / 1000

    def leave(self, member_id: str, instance_id: str | None, now: float) -> ErrorCode:
        """Remove a member that leaves; a static one may be removed by its instance id alone."""
        if instance_id is not None and not member_id:
            member_id = self._roster.holder(instance_id) or ""
        if self._promised.pop(member_id, None) is not None:
            self._complete_if_all_here(now)
            return ErrorCode.NONE
        problem = self.member_problem(member_id, instance_id)
        if problem is not None:
            return problem
        self._expel(member_id, ErrorCode.UNKNOWN_MEMBER_ID, now)
        return ErrorCode.NONE

    def _expel(self, member_id: str, error: ErrorCode, now: float) -> None:
        joining = self._roster.withdraw(member_id)
        if joining is not None:
            self._refuse_join(joining, error)
        token = self._syncing.pop(member_id, None)
        if token is not None:
            self._outbox.answer(token, SyncGroupResponse(error_code=error))
        self._sessions.pop(member_id, None)
        if self._is_member(member_id):
            self._roster.remove(member_id)
            self._gather(now)
        self._complete_if_all_here(now)

    def next_deadline(self) -> float:
        """Return when `tick` may have something to do."""
        window_ends_at = self._window.ends_at if self._window is not None else NEVER
        members = min(self._sessions.earliest, self._promised.earliest)
        return min(window_ends_at, members, self._sync_ends_at)

    def _is_waiting(self, member_id: str) -> bool:
        """True if the member waits for our answer, and so is not silent."""
        return member_id in self._roster.joining or member_id in self._syncing

    def tick(self, now: float) -> None:
        """Do what is due: end sessions, close windows."""
        for member_id in [i for i, at in self._promised.items() if at <= now]:
            del self._promised[member_id]
        for member_id in list(self._sessions):
            # Members that waited for one that is expelled here begin a new session.
            ends_at = self._sessions.get(member_id, NEVER)
            if ends_at <= now and not self._is_waiting(member_id):
                self._expel(member_id, ErrorCode.UNKNOWN_MEMBER_ID, now)
        if self._sync_ends_at <= now:
            self._sync_ends_at = NEVER
            for member_id in [i for i in self.members() if i not in self._syncing]:
                self._expel(member_id, ErrorCode.UNKNOWN_MEMBER_ID, now)
        window = self._window
        if window is not None and window.ends_at <= now:
            self._complete(now)
        else:
            self._complete_if_all_here(now)
        self._sessions.recount(is_left_out=self._is_waiting)
        self._promised.recount()
