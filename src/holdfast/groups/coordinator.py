"""The coordinator of all groups of one lane: it handles each request for the group it names.

Pure. Owns committed offsets, and the deletion and expiry of whole groups; `memberships` handles the
members. Answers go to the outbox, at once or when other requests have come. Facts go there too, and
are applied when that call returns.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from uuid import UUID

from holdfast.groups.caller import Caller
from holdfast.groups.classic.classic_group import ClassicGroup, GroupPhase
from holdfast.groups.classic.generation import metadata_of
from holdfast.groups.commits import CommitDecision, RequestedCommit, judge_commit
from holdfast.groups.committers import Committer, classic_problem, consumer_problem
from holdfast.groups.consumer.checks import fetch_problem
from holdfast.groups.consumer.consumer_group import ConsumerGroup
from holdfast.groups.consumer.targets import subscribed_names
from holdfast.groups.facts import (
    GroupDeleted,
    OffsetsCommitted,
    OffsetsRemoved,
)
from holdfast.groups.memberships import Memberships
from holdfast.groups.outbox import Outbox, Token
from holdfast.groups.retention import HeldOffsets, expired_offsets
from holdfast.groups.rules import GroupRules
from holdfast.groups.state import Group, GroupsState
from holdfast.groups.table import GroupTable
from holdfast.groups.topics import Topics
from holdfast.identifiers import PartitionId
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.consumer_protocol import PROTOCOL_TYPE, subscribed_topics
from holdfast.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from holdfast.protocol.messages.join_group import JoinGroupRequest
from holdfast.protocol.messages.sync_group import SyncGroupRequest

SLICE_GROUPS = 1_000
SLICE_OFFSETS = 10_000
"""How many groups, or how many of their committed offsets, are handled before other work has its
turn. One group is never split."""


class GroupCoordinator:
    """The coordinator of the groups of one lane."""

    def __init__(
        self,
        state: GroupsState,
        outbox: Outbox,
        rules: GroupRules,
        *,
        now: float,
        now_ms: Callable[[], int],
        topics: Callable[[], Topics],
        new_member_suffix: Callable[[], str],
    ) -> None:
        self.state = state
        self._outbox = outbox
        self._rules = rules
        self._now_ms = now_ms
        self._topics = topics
        self._table = GroupTable(state, outbox, rules, now=now, now_ms=now_ms, topics=topics)
        self._memberships = Memberships(self._table, outbox, rules, topics, new_member_suffix)
        self.refused_commits: dict[str, int] = {}
        """How many late acks (see `commits`) each group sent since this coordinator took over."""
        self.refused_commits_in_all = 0

    def classic(self, group_id: str) -> ClassicGroup | None:
        return self._table.classic.get(group_id)

    def consumer(self, group_id: str) -> ConsumerGroup | None:
        return self._table.consumer.get(group_id)

    def known_topics(self, group_id: str) -> Topics:
        """Return the topics of the group's last request, and what its expressions match in them."""
        group = self._table.consumer.get(group_id)
        return group.topics if group is not None else Topics({})

    def expressions(self, group_id: str) -> set[str]:
        """Return the expressions that must be matched in the topics given with a request."""
        group = self._table.consumer.get(group_id)
        return group.durable.expressions() if group is not None else set()

    def consumer_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        token: Token,
        topics: Topics,
        now: float,
    ) -> None:
        """Take a heartbeat by which a member of a consumer group joins, stays or leaves."""
        self._memberships.consumer_heartbeat(request, caller, token, topics, now)

    def join(
        self, request: JoinGroupRequest, caller: Caller, token: Token, topics: Topics, now: float
    ) -> None:
        """Take the join of a consumer that wants to be in the next generation."""
        self._memberships.join(request, caller, token, topics, now)

    def sync(self, request: SyncGroupRequest, token: Token, now: float) -> None:
        """Take the sync of a member that wants its assignment, or of a leader that brings all."""
        self._memberships.sync(request, token, now)

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, now: float
    ) -> ErrorCode:
        """Take the heartbeat of a classic member. The answer may leave at once."""
        return self._memberships.heartbeat(group_id, member_id, instance_id, generation, now)

    def leave(
        self, group_id: str, members: Sequence[tuple[str, str | None]], now: float
    ) -> list[ErrorCode]:
        """Remove members (by id or group.instance.id), for themselves or for an administrator."""
        return self._memberships.leave(group_id, members, now)

    def commit(
        self,
        group_id: str,
        committer: Committer,
        asked: Sequence[RequestedCommit],
        now: float,
        *,
        retention_ms: int = -1,
    ) -> ErrorCode | CommitDecision:
        """Commit offsets, partition by partition; an error code if none may be committed."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self._table.classic.get(group_id)
        consumer = self._table.consumer.get(group_id)
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
            self.refused_commits_in_all += judged.refused_as_not_owned
        if judged.accepted:
            self._outbox.decide(
                OffsetsCommitted(
                    group_id, judged.accepted, committer.producer_id, committer.producer_epoch
                )
            )
        if consumer is None and group_id in self.state.groups:
            self._table.open_classic(group_id, now)
        return judged

    def delete(self, group_id: str) -> ErrorCode:
        """Delete a group that has no members."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self._table.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if self._table.has_members(group_id):
            return ErrorCode.NON_EMPTY_GROUP
        if group_id in self.state.groups:
            self._outbox.decide(GroupDeleted(group_id))
        self._table.forget(group_id)
        self.refused_commits.pop(group_id, None)
        return ErrorCode.NONE

    def classic_groups(self) -> list[ClassicGroup]:
        return list(self._table.classic.values())

    def consumer_groups(self) -> list[ConsumerGroup]:
        return list(self._table.consumer.values())

    def offset_fetch_problem(
        self, group_id: str, member_id: str | None, member_epoch: int
    ) -> ErrorCode | None:
        """Return why a member may not fetch the committed offsets of its group; None if it may."""
        consumer = self._table.consumer.get(group_id)
        if consumer is None:
            return None
        return fetch_problem(consumer.durable, member_id, member_epoch)

    def offset_delete_problem(self, group_id: str) -> ErrorCode | None:
        """Return why no committed offset of a group may be deleted; None if some may."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        if group_id in self._table.consumer:
            return None
        group = self._table.classic.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        generation = group.generation
        is_consumer = generation is not None and generation.protocol_type == PROTOCOL_TYPE
        if group.phase is GroupPhase.EMPTY or is_consumer:
            return None
        return ErrorCode.NON_EMPTY_GROUP

    def subscribed_topics(self, group_id: str) -> set[str] | None:
        """Return the topics that members want; None if unknown, so that it may be any topic."""
        consumer = self._table.consumer.get(group_id)
        if consumer is not None:
            return subscribed_names(consumer.durable, consumer.topics)
        group = self._table.classic.get(group_id)
        generation = group.generation if group is not None else None
        if group is None or generation is None or group.phase is GroupPhase.EMPTY:
            return set()
        found: set[str] = set()
        for member in group.members().values():
            wanted = subscribed_topics(metadata_of(member, generation.protocol_name))
            if wanted is None:
                return None
            found.update(wanted)
        return found

    def remove_offsets(self, group_id: str, partitions: list[PartitionId]) -> int:
        """Delete committed offsets, by request or if expired, and return how many there were."""
        group = self.state.groups.get(group_id)
        found = [p for p in partitions if group is not None and group.mentions(p)]
        if found:
            self._outbox.decide(OffsetsRemoved(group_id, found))
        return len(found)

    def remove_offsets_of(self, topics: Collection[UUID]) -> Iterator[int]:
        """Delete all committed offsets of topics that are gone.

        Yields after each slice of groups, so that other work has its turn: the number of offsets
        deleted in the slice.
        """
        for groups in self._slices():
            removed = 0
            for group in groups:
                found = group.partitions_of(topics)
                if found:
                    self._outbox.decide(OffsetsRemoved(group.group_id, found))
                    removed += len(found)
            yield removed

    def expire_offsets(self) -> Iterator[int]:
        """Delete committed offsets that have expired, and groups of which nothing is left.

        Offsets of an unknown topic are kept: the topic may have just been created. Yields after
        each slice of groups, as `remove_offsets_of`.
        """
        names = {topic.topic_id: name for name, topic in self._topics().by_name.items()}
        for groups in self._slices():
            yield sum(self._expire(group, names) for group in groups if group.offsets)

    def _slices(self) -> Iterator[list[Group]]:
        """Yield the groups that exist now, in slices; each one as it is when its turn comes."""
        part: list[Group] = []
        offsets = 0
        for group_id in list(self.state.groups):
            group = self.state.groups.get(group_id)
            if group is None:
                continue  # deleted since the loop began
            part.append(group)
            offsets += group.offset_count()
            if len(part) >= SLICE_GROUPS or offsets >= SLICE_OFFSETS:
                yield part
                part, offsets = [], 0
        if part:
            yield part

    def _expire(self, group: Group, names: Mapping[UUID, str]) -> int:
        group_id = group.group_id
        has_members = self._table.has_members(group_id)
        wanted = self.subscribed_topics(group_id)
        kept = {
            partition
            for partition in group.offsets
            if wanted is None
            or partition.topic_id not in names
            or names[partition.topic_id] in wanted
        }
        expired = expired_offsets(
            group,
            HeldOffsets(kept, has_members),
            retention_ms=self._rules.offsets_retention_ms,
            now_ms=self._now_ms(),
        )
        removed = self.remove_offsets(group_id, expired)
        if expired and not (has_members or group.offsets or group.pending):
            self.delete(group_id)
        return removed

    def next_deadline(self) -> float:
        """Return when `tick` has something to do, or a little earlier."""
        return self._table.next_deadline()

    def tick(self, now: float) -> None:
        """Do what is due."""
        self._table.tick(now)
