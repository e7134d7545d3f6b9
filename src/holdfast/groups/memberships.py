"""Joins, syncs, heartbeats and leaves for all groups of one lane.

Pure. Owns which protocol serves a request: a member of one protocol may be in a group of the other,
and its request may make the group change its protocol.
"""

from collections.abc import Callable, Sequence

from holdfast.groups.caller import Caller
from holdfast.groups.classic.classic_group import ClassicGroup
from holdfast.groups.classic.roster import Joining
from holdfast.groups.consumer import classic_members as mixed
from holdfast.groups.consumer.heartbeats import HeartbeatRefusal, request_problem
from holdfast.groups.consumer.reconciliation import JOIN_EPOCH
from holdfast.groups.facts import ClassicMember
from holdfast.groups.outbox import Outbox, Token
from holdfast.groups.rules import GroupRules
from holdfast.groups.table import GroupTable
from holdfast.groups.topics import Topics
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from holdfast.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from holdfast.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

MEMBER_ID_REQUIRED_SINCE = 4


class Memberships:
    """The handling of joins, syncs, heartbeats and leaves, in both protocols."""

    def __init__(
        self,
        table: GroupTable,
        outbox: Outbox,
        rules: GroupRules,
        topics: Callable[[], Topics],
        new_member_suffix: Callable[[], str],
    ) -> None:
        self._table = table
        self._outbox = outbox
        self._rules = rules
        self._topics = topics
        self._new_member_suffix = new_member_suffix

    def consumer_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        token: Token,
        topics: Topics,
        now: float,
    ) -> None:
        """Take a heartbeat by which a member of a consumer group joins, stays or leaves."""
        group_id = request.group_id
        refusal = request_problem(request, caller.version) or self._kind_problem(request, now)
        if refusal is not None:
            self._outbox.answer(token, refusal.response())
            return
        group = self._table.open_consumer(group_id, now)
        member_id = request.member_id or self._new_member_suffix()
        answer = group.heartbeat(request, member_id, caller, topics, now)
        classic = self._table.downgrade(group_id, now)
        self._outbox.answer(token, answer)
        self._table.watch(classic or group)

    def _kind_problem(
        self, request: ConsumerGroupHeartbeatRequest, now: float
    ) -> HeartbeatRefusal | None:
        """Return why the group cannot take the heartbeat. A join may upgrade a classic group."""
        group_id = request.group_id
        if group_id in self._table.consumer:
            return None
        if request.member_epoch != JOIN_EPOCH:
            return HeartbeatRefusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return self._table.upgrade(group_id, now) if self._table.has_members(group_id) else None

    def join(
        self, request: JoinGroupRequest, caller: Caller, token: Token, topics: Topics, now: float
    ) -> None:
        """Take the join of a consumer that wants to be in the next generation."""
        problem = self._join_problem(request)
        if problem is not None:
            self._refuse_join(token, request.member_id, problem)
            return
        group_id = request.group_id
        self._table.downgrade(group_id, now)  # if a policy or a crash has left that undone
        is_of_consumers = group_id in self._table.consumer and self._table.has_members(group_id)
        if is_of_consumers:
            self._join_consumer_group(request, caller, token, topics, now)
        else:
            self._join_classic_group(request, caller, token, now)

    def _join_classic_group(
        self, request: JoinGroupRequest, caller: Caller, token: Token, now: float
    ) -> None:
        group = self._table.classic.get(request.group_id)
        problem: ErrorCode | None = None
        if request.member_id:
            problem = ErrorCode.UNKNOWN_MEMBER_ID
            problem = self._may_join_as(group, request) if group is not None else problem
        if problem is not None:
            self._refuse_join(token, request.member_id, problem)
            return
        group = self._table.open_classic(request.group_id, now)
        member_id = request.member_id or self._new_member_id(request, caller)
        if _must_ask_again(request, caller):
            group.promise(member_id, request.session_timeout_ms, now)
            problem = ErrorCode.MEMBER_ID_REQUIRED
        else:
            member = _member(request, caller, member_id)
            problem = group.join_problem(member, request.protocol_type)
            if problem is None:
                joining = Joining(token, member, request.protocol_type)
                group.join(joining, now, version=caller.version)
            else:
                member_id = request.member_id
        if problem is not None:
            self._refuse_join(token, member_id, problem)
        self._table.watch(group)

    def _join_consumer_group(
        self, request: JoinGroupRequest, caller: Caller, token: Token, topics: Topics, now: float
    ) -> None:
        """Take the join of a classic member to a group that is changing its protocol."""
        group = self._table.consumer[request.group_id]
        member_id = request.member_id or self._new_member_id(request, caller)
        joining = Joining(token, _member(request, caller, member_id), request.protocol_type)
        has_id = bool(request.member_id)
        found = mixed.joined(group.durable, joining, has_id=has_id, rules=self._rules)
        if isinstance(found, ErrorCode):
            self._refuse_join(token, request.member_id, found)
            return
        if _must_ask_again(request, caller):
            self._refuse_join(token, member_id, ErrorCode.MEMBER_ID_REQUIRED)
            return
        answer = mixed.join(group, found, topics, now)
        classic = self._table.downgrade(request.group_id, now)
        if classic is not None:  # it took the place of the last member of the new protocol
            classic.join(joining, now, version=caller.version)
        else:
            self._outbox.answer(token, answer)
        self._table.watch(classic or group)

    def _new_member_id(self, request: JoinGroupRequest, caller: Caller) -> str:
        prefix = request.group_instance_id
        prefix = caller.client_id if prefix is None else prefix
        return f"{prefix}-{self._new_member_suffix()}"

    def _join_problem(self, request: JoinGroupRequest) -> ErrorCode | None:
        rules = self._rules
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        shortest, longest = rules.group_min_session_timeout_ms, rules.group_max_session_timeout_ms
        if not shortest <= request.session_timeout_ms <= longest:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        return None

    def _may_join_as(self, group: ClassicGroup, request: JoinGroupRequest) -> ErrorCode | None:
        if request.group_instance_id is None and group.has_promised(request.member_id):
            return None
        return group.member_problem(request.member_id, request.group_instance_id)

    def _refuse_join(self, token: Token, member_id: str, error: ErrorCode) -> None:
        self._outbox.answer(token, JoinGroupResponse(error_code=error, member_id=member_id))

    def sync(self, request: SyncGroupRequest, token: Token, now: float) -> None:
        """Take the sync of a member that wants its assignment, or of a leader that brings all."""
        consumer = self._table.consumer.get(request.group_id)
        if consumer is not None:
            self._outbox.answer(token, mixed.sync(consumer, request, self._topics(), now))
            return
        group = self._table.classic.get(request.group_id)
        if group is None:
            error = ErrorCode.UNKNOWN_MEMBER_ID
            self._outbox.answer(token, SyncGroupResponse(error_code=error))
            return
        group.sync(request, token, now)
        self._table.watch(group)

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, now: float
    ) -> ErrorCode:
        """Take the heartbeat of a classic member. The answer may leave at once: to join again does
        no harm, even if the facts that led to it are never durable."""
        consumer = self._table.consumer.get(group_id)
        if consumer is not None:
            topics = self._topics()
            found = mixed.heartbeat(consumer, member_id, instance_id, generation, topics, now)
            self._table.watch(consumer)
            return found
        group = self._table.classic.get(group_id)
        problem = (
            ErrorCode.UNKNOWN_MEMBER_ID
            if group is None
            else group.member_problem(member_id, instance_id)
        )
        if problem is not None or group is None:
            return problem or ErrorCode.UNKNOWN_MEMBER_ID
        return group.heartbeat(member_id, generation, now)

    def leave(
        self, group_id: str, members: Sequence[tuple[str, str | None]], now: float
    ) -> list[ErrorCode]:
        """Remove members (by id or group.instance.id), for themselves or for an administrator."""
        consumer = self._table.consumer.get(group_id)
        group = self._table.classic.get(group_id)
        if consumer is not None:
            errors = [mixed.leave(consumer, member_id, name) for member_id, name in members]
            self._table.watch(consumer)
        elif group is not None:
            errors = [group.leave(member_id, name, now) for member_id, name in members]
            self._table.watch(group)
        else:
            errors = [ErrorCode.UNKNOWN_MEMBER_ID for _ in members]
        return errors


def _must_ask_again(request: JoinGroupRequest, caller: Caller) -> bool:
    """True if the member is new and dynamic: it gets its id first, then joins with it (KIP-394)."""
    is_new_and_dynamic = not request.member_id and request.group_instance_id is None
    return is_new_and_dynamic and caller.version >= MEMBER_ID_REQUIRED_SINCE


def _member(request: JoinGroupRequest, caller: Caller, member_id: str) -> ClassicMember:
    rebalance_ms = request.rebalance_timeout_ms
    return ClassicMember(
        member_id,
        request.group_instance_id,
        caller.client_id,
        caller.client_host,
        request.session_timeout_ms,
        rebalance_ms if rebalance_ms >= 0 else request.session_timeout_ms,
        [(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols],
    )
