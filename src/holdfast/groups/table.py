"""The groups of one lane by name and protocol, their deadlines, and changes of the protocol.

Pure. Owns which of the two protocols runs a group. Must never drop a group's members when that
changes: either the group has none, or one fact carries them over.
"""

from collections.abc import Callable

from holdfast.groups.classic.classic_group import ClassicGroup, GroupPhase
from holdfast.groups.consumer.consumer_group import ConsumerGroup, ConsumerPhase
from holdfast.groups.consumer.heartbeats import HeartbeatRefusal
from holdfast.groups.deadlines import Deadlines
from holdfast.groups.migration import downgraded, upgraded
from holdfast.groups.outbox import Outbox
from holdfast.groups.rules import GroupRules
from holdfast.groups.state import GroupsState
from holdfast.groups.topics import Topics
from holdfast.protocol.api import ErrorCode

AnyGroup = ClassicGroup | ConsumerGroup


class GroupTable:
    """All known groups of a lane."""

    def __init__(
        self,
        state: GroupsState,
        outbox: Outbox,
        rules: GroupRules,
        *,
        now: float,
        now_ms: Callable[[], int],
        topics: Callable[[], Topics],
    ) -> None:
        self.classic: dict[str, ClassicGroup] = {}
        self.consumer: dict[str, ConsumerGroup] = {}
        self._state = state
        self._outbox = outbox
        self._rules = rules
        self._now_ms = now_ms
        self._topics = topics
        self._deadlines = Deadlines()
        for group_id, group in state.groups.items():
            is_classic = group.consumers is None
            opened = self.open_classic if is_classic else self.open_consumer
            self.watch(opened(group_id, now))

    def get(self, group_id: str) -> AnyGroup | None:
        return self.classic.get(group_id) or self.consumer.get(group_id)

    def has_members(self, group_id: str) -> bool:
        group = self.get(group_id)
        return group is not None and group.phase not in (GroupPhase.EMPTY, ConsumerPhase.EMPTY)

    def open_classic(self, group_id: str, now: float) -> ClassicGroup:
        group = self.classic.get(group_id)
        if group is None:
            self.consumer.pop(group_id, None)
            group = ClassicGroup(
                group_id, self._state, self._outbox, self._rules, now, self._now_ms
            )
            self.classic[group_id] = group
        return group

    def open_consumer(self, group_id: str, now: float) -> ConsumerGroup:
        group = self.consumer.get(group_id)
        if group is None:
            self.classic.pop(group_id, None)
            group = ConsumerGroup(
                group_id, self._state, self._outbox, self._rules, now, self._now_ms
            )
            self.consumer[group_id] = group
        return group

    def upgrade(self, group_id: str, now: float) -> HeartbeatRefusal | None:
        """Make a classic group with members a consumer group; a Refusal if it stays classic."""
        group = self.classic[group_id]
        policy, members = self._rules.group_consumer_migration_policy, group.all_members()
        refused = ErrorCode.GROUP_ID_NOT_FOUND
        if not policy.allows_upgrade:
            reason = f"and group.consumer.migration.policy is {policy}"
            return HeartbeatRefusal(refused, f"Group {group_id} is not a consumer group, {reason}.")
        if len(members) >= self._rules.group_consumer_max_size:
            # The new member would be refused, and the group would at once be a classic one again.
            reason = f"it has {len(members)} members"
            return HeartbeatRefusal(
                refused, f"Classic group {group_id} cannot be upgraded: {reason}."
            )
        generation = group.generation
        if generation is None or generation.assignments is None:
            # What its members own is known only after the assignment; clients ask again.
            message = f"Classic group {group_id} is rebalancing; it is upgraded after that."
            return HeartbeatRefusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message)
        fact = upgraded(group_id, generation, members, self._topics())
        if isinstance(fact, str):
            return HeartbeatRefusal(
                refused, f"Classic group {group_id} cannot be upgraded: {fact}."
            )
        self._outbox.decide(fact)
        group.dissolve()
        self.open_consumer(group_id, now)
        return None

    def downgrade(self, group_id: str, now: float) -> ClassicGroup | None:
        """Make a consumer group whose members are all classic a classic group; None if it stays."""
        group = self.consumer.get(group_id)
        if group is None or not group.durable.is_left_to_classic_members():
            return None
        is_small = len(group.durable.members) <= self._rules.group_max_size
        if not (self._rules.group_consumer_migration_policy.allows_downgrade and is_small):
            return None
        now_ms = self._now_ms()
        self._outbox.decide(downgraded(group_id, group.durable, self._topics(), now_ms=now_ms))
        return self.open_classic(group_id, now)

    def watch(self, group: AnyGroup) -> None:
        """Set the deadline of a group after a change; forget it if it is idle and has no facts."""
        if group.is_idle and group.group_id not in self._state.groups:
            self.forget(group.group_id)
        else:
            self._deadlines.set(group.group_id, group.next_deadline())

    def forget(self, group_id: str) -> None:
        self.classic.pop(group_id, None)
        self.consumer.pop(group_id, None)

    def next_deadline(self) -> float:
        return self._deadlines.first()

    def tick(self, now: float) -> None:
        """Do what is due."""
        for group_id in self._deadlines.due(now):
            group = self.get(group_id)
            if group is not None:
                group.tick(now)
                self.watch(self.downgrade(group_id, now) or group)
