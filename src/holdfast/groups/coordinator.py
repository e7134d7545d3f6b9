"""The coordinator of all groups of one lane: each request against the group that it names.

Pure. Owns the soft state of all groups and their deadlines. Answers go to the outbox, at once or
when others have come; facts go there too, and are applied when that call returns.
"""

from collections.abc import Callable, Sequence

from holdfast.groups.caller import Caller
from holdfast.groups.classic import ClassicGroup, Joining, Phase
from holdfast.groups.commits import Asked, Judged, judge_commit
from holdfast.groups.committers import Committer, classic_problem, consumer_problem
from holdfast.groups.consumer import ConsumerGroup, ConsumerPhase
from holdfast.groups.consumer_checks import fetch_problem
from holdfast.groups.deadlines import Deadlines
from holdfast.groups.facts import (
    ClassicMember,
    GroupDeleted,
    OffsetsCommitted,
    OffsetsRemoved,
)
from holdfast.groups.generation import metadata_of
from holdfast.groups.heartbeats import Refusal, request_problem
from holdfast.groups.outbox import GroupRules, Outbox, Token
from holdfast.groups.reconciliation import JOIN_EPOCH
from holdfast.groups.retention import Held, expired_offsets
from holdfast.groups.state import GroupsState
from holdfast.groups.topics import Topics
from holdfast.identifiers import PartitionId
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.consumer_protocol import PROTOCOL_TYPE, subscribed_topics
from holdfast.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from holdfast.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from holdfast.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

MEMBER_ID_REQUIRED_SINCE = 4


class GroupCoordinator:
    """The groups of one lane."""

    def __init__(
        self,
        state: GroupsState,
        outbox: Outbox,
        rules: GroupRules,
        *,
        now: float,
        now_ms: Callable[[], int],
        new_member_suffix: Callable[[], str],
    ) -> None:
        self.state = state
        self._outbox = outbox
        self._rules = rules
        self._now_ms = now_ms
        self._new_member_suffix = new_member_suffix
        self._classic: dict[str, ClassicGroup] = {}
        self._consumer: dict[str, ConsumerGroup] = {}
        self._deadlines = Deadlines()
        self.refused_commits: dict[str, int] = {}
        """How many late acks each group has sent, since this coordinator took over."""
        for group_id, group in state.groups.items():
            is_classic = group.consumers is None
            opened = self._opened if is_classic else self._opened_consumer
            self._watch(opened(group_id, now))

    def _opened(self, group_id: str, now: float) -> ClassicGroup:
        group = self._classic.get(group_id)
        if group is None:
            self._consumer.pop(group_id, None)
            group = ClassicGroup(group_id, self.state, self._outbox, self._rules, now, self._now_ms)
            self._classic[group_id] = group
        return group

    def _opened_consumer(self, group_id: str, now: float) -> ConsumerGroup:
        group = self._consumer.get(group_id)
        if group is None:
            self._classic.pop(group_id, None)
            group = ConsumerGroup(
                group_id, self.state, self._outbox, self._rules, now, self._now_ms
            )
            self._consumer[group_id] = group
        return group

    def _watch(self, group: ClassicGroup | ConsumerGroup) -> None:
        """Something happened to a group: look at it earlier, or forget one that came to nothing."""
        if group.is_idle and group.group_id not in self.state.groups:
            self._forget(group.group_id)
        else:
            self._deadlines.set(group.group_id, group.next_deadline())

    def classic(self, group_id: str) -> ClassicGroup | None:
        return self._classic.get(group_id)

    def consumer(self, group_id: str) -> ConsumerGroup | None:
        return self._consumer.get(group_id)

    def consumer_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        topics: Topics,
        token: Token,
        now: float,
    ) -> None:
        """A member of a consumer group joins, is alive, or goes."""
        refusal = request_problem(request, caller.version) or self._kind_problem(request)
        if refusal is not None:
            self._outbox.answer(token, refusal.response())
            return
        group = self._opened_consumer(request.group_id, now)
        member_id = request.member_id or self._new_member_suffix()
        self._outbox.answer(token, group.heartbeat(request, member_id, caller, topics, now))
        self._watch(group)

    def _kind_problem(self, request: ConsumerGroupHeartbeatRequest) -> Refusal | None:
        """Only an empty classic group becomes a consumer group; only who joins makes one."""
        group_id = request.group_id
        if group_id in self._consumer:
            return None
        classic = self._classic.get(group_id)
        if classic is not None and classic.phase is not Phase.EMPTY:
            message = f"Group {group_id} is not a consumer group."
            return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, message)
        if request.member_epoch != JOIN_EPOCH:
            return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return None

    def join(self, request: JoinGroupRequest, caller: Caller, token: Token, now: float) -> None:
        """A consumer wants to be in the next generation."""
        problem = self._join_problem(request)
        group = self._classic.get(request.group_id)
        if problem is None and request.member_id:
            known = group is not None and self._may_join_as(group, request)
            problem = known if isinstance(known, ErrorCode) else None
            if group is None:
                problem = ErrorCode.UNKNOWN_MEMBER_ID
        if problem is not None:
            self._refuse_join(token, request.member_id, problem)
            return
        group = self._opened(request.group_id, now)
        is_dynamic = request.group_instance_id is None
        member_id = request.member_id
        if not member_id:
            prefix = caller.client_id if is_dynamic else request.group_instance_id
            member_id = f"{prefix}-{self._new_member_suffix()}"
            if is_dynamic and caller.version >= MEMBER_ID_REQUIRED_SINCE:
                group.promise(member_id, request.session_timeout_ms, now)
                self._refuse_join(token, member_id, ErrorCode.MEMBER_ID_REQUIRED)
                self._watch(group)
                return
        member = _member(request, caller, member_id)
        problem = group.join_problem(member, request.protocol_type)
        if problem is not None:
            self._refuse_join(token, request.member_id, problem)
            self._watch(group)
            return
        group.join(Joining(token, member, request.protocol_type), now, version=caller.version)
        self._watch(group)

    def _join_problem(self, request: JoinGroupRequest) -> ErrorCode | None:
        rules = self._rules
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        shortest, longest = rules.group_min_session_timeout_ms, rules.group_max_session_timeout_ms
        if not shortest <= request.session_timeout_ms <= longest:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        consumer = self._consumer.get(request.group_id)
        if consumer is not None and consumer.phase is not ConsumerPhase.EMPTY:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return None

    def _may_join_as(self, group: ClassicGroup, request: JoinGroupRequest) -> ErrorCode | None:
        if request.group_instance_id is None and group.has_promised(request.member_id):
            return None
        return group.member_problem(request.member_id, request.group_instance_id)

    def _refuse_join(self, token: Token, member_id: str, error: ErrorCode) -> None:
        self._outbox.answer(token, JoinGroupResponse(error_code=error, member_id=member_id))

    def sync(self, request: SyncGroupRequest, token: Token, now: float) -> None:
        """A member wants its assignment, or brings those of all."""
        group = self._classic.get(request.group_id)
        if group is None:
            error = ErrorCode.UNKNOWN_MEMBER_ID
            self._outbox.answer(token, SyncGroupResponse(error_code=error))
            return
        group.sync(request, token, now)
        self._watch(group)

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, now: float
    ) -> ErrorCode:
        """A member is alive. Changes nothing durable, so the answer may leave at once."""
        group = self._classic.get(group_id)
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
        """Members (by id, or by group.instance.id) go, of their own will or an administrator's."""
        group = self._classic.get(group_id)
        if group is None:
            return [ErrorCode.UNKNOWN_MEMBER_ID for _ in members]
        errors = [group.leave(member_id, instance_id, now) for member_id, instance_id in members]
        self._watch(group)
        return errors

    def commit(
        self,
        group_id: str,
        committer: Committer,
        asked: Sequence[Asked],
        now: float,
        *,
        retention_ms: int = -1,
    ) -> ErrorCode | Judged:
        """Move committed offsets, partition by partition; or why none may be moved."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self._classic.get(group_id)
        consumer = self._consumer.get(group_id)
        problem = (
            consumer_problem(consumer.durable, committer)
            if consumer is not None
            else classic_problem(group, committer)
        )
        if problem is not None:
            return problem
        if group is not None:
            group.touch(committer.member_id, now)
        judged = judge_commit(
            self.state.groups.get(group_id),
            None if committer.is_nameless else committer.member_id,
            asked,
            self._rules,
            member_epoch=committer.generation,
            now_ms=self._now_ms(),
            retention_ms=retention_ms,
        )
        if judged.refused_as_not_owned:
            before = self.refused_commits.get(group_id, 0)
            self.refused_commits[group_id] = before + judged.refused_as_not_owned
        if judged.accepted:
            self._outbox.decide(
                OffsetsCommitted(
                    group_id, judged.accepted, committer.producer_id, committer.producer_epoch
                )
            )
        if consumer is None and group_id in self.state.groups:
            self._opened(group_id, now)
        return judged

    def delete(self, group_id: str) -> ErrorCode:
        """Forget a group that nobody is in."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self._classic.get(group_id) or self._consumer.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if self._has_members(group_id):
            return ErrorCode.NON_EMPTY_GROUP
        if group_id in self.state.groups:
            self._outbox.decide(GroupDeleted(group_id))
        self._forget(group_id)
        return ErrorCode.NONE

    def _has_members(self, group_id: str) -> bool:
        group = self._classic.get(group_id) or self._consumer.get(group_id)
        return group is not None and group.phase not in (Phase.EMPTY, ConsumerPhase.EMPTY)

    def _forget(self, group_id: str) -> None:
        self._classic.pop(group_id, None)
        self._consumer.pop(group_id, None)
        self.refused_commits.pop(group_id, None)

    def classic_groups(self) -> list[ClassicGroup]:
        return list(self._classic.values())

    def consumer_groups(self) -> list[ConsumerGroup]:
        return list(self._consumer.values())

    def offset_fetch_problem(
        self, group_id: str, member_id: str | None, member_epoch: int
    ) -> ErrorCode | None:
        """Why a member may not ask for the committed offsets of its group."""
        consumer = self._consumer.get(group_id)
        if consumer is None:
            return None
        return fetch_problem(consumer.durable, member_id, member_epoch)

    def offset_delete_problem(self, group_id: str) -> ErrorCode | None:
        """Why no committed offset of a group may be deleted."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        if group_id in self._consumer:
            return None
        group = self._classic.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        generation = group.generation
        is_consumer = generation is not None and generation.protocol_type == PROTOCOL_TYPE
        if group.phase is Phase.EMPTY or is_consumer:
            return None
        return ErrorCode.NON_EMPTY_GROUP

    def subscribed_topics(self, group_id: str, topics: Topics) -> set[str] | None:
        """What the members want; None where that cannot be told, so that it may be anything."""
        consumer = self._consumer.get(group_id)
        if consumer is not None:
            return consumer.subscribed_names(topics)
        group = self._classic.get(group_id)
        generation = group.generation if group is not None else None
        if group is None or generation is None or group.phase is Phase.EMPTY:
            return set()
        found: set[str] = set()
        for member in group.members().values():
            wanted = subscribed_topics(metadata_of(member, generation.protocol_name))
            if wanted is None:
                return None
            found.update(wanted)
        return found

    def remove_offsets(self, group_id: str, partitions: list[PartitionId]) -> None:
        """Forget committed offsets, by request or because their topic is gone."""
        group = self.state.groups.get(group_id)
        found = [p for p in partitions if group is not None and group.mentions(p)]
        if found:
            self._outbox.decide(OffsetsRemoved(group_id, found))

    def expire_offsets(self, topics: Topics) -> None:
        """Forget committed offsets that are too old, and groups of which nothing is left.

        Those of a topic that is not known are kept: it may be one that was just created.
        """
        names = {topic.topic_id: name for name, topic in topics.by_name.items()}
        for group_id, group in list(self.state.groups.items()):
            has_members = self._has_members(group_id)
            wanted = self.subscribed_topics(group_id, topics)
            kept = [
                partition
                for partition in group.offsets
                if wanted is None
                or partition.topic_id not in names
                or names[partition.topic_id] in wanted
            ]
            expired = expired_offsets(
                group,
                Held(set(kept), has_members),
                retention_ms=self._rules.offsets_retention_ms,
                now_ms=self._now_ms(),
            )
            self.remove_offsets(group_id, expired)
            if expired and not (has_members or group.offsets or group.pending):
                self.delete(group_id)

    def next_deadline(self) -> float:
        """When `tick` has something to do, or a little earlier."""
        return self._deadlines.first()

    def tick(self, now: float) -> None:
        """Let what is due happen."""
        for group_id in self._deadlines.due(now):
            group = self._classic.get(group_id) or self._consumer.get(group_id)
            if group is not None:
                group.tick(now)
                self._watch(group)


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
