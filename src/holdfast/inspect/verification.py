"""Read every byte of a store and compare it with what the rest of the store says about it.

Owns the order: lanes, then the segments that they name, then what nothing names. Continues after a
problem, so that one run names all damaged objects. A broker may write at the same time: if it
deletes objects of a lane during the walk, the lane is walked again. Must never write.
"""

import re
from uuid import UUID

from holdfast.cluster.state import ControlState
from holdfast.environment import Environment
from holdfast.errors import ObjectNotFound, RetryError, StopError
from holdfast.identifiers import CONTROL_LANE, LaneId, PartitionId
from holdfast.inspect.findings import Findings
from holdfast.inspect.lane_audit import (
    segment_problems,
    shown,
    tile_problems,
    transaction_problems,
    unreadable_batches,
)
from holdfast.inspect.lane_walk import LaneWalk, StoreMoved
from holdfast.lane.recovery import recover
from holdfast.log.facts import SegmentRef
from holdfast.log.partition import PartitionLog
from holdfast.log.rewriter import claim_in
from holdfast.log.state import LogState, LogStateKind, partition_prefix, segment_key
from holdfast.store.interface import ObjectEntry, Store
from holdfast.store.patience import patiently

WALKS_MAX = 5
LANE_KEY = re.compile(r"(?:lanes|snapshots|floors)/([0-9]{4})/[0-9]{20}")
TOPIC_ID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
SEGMENT_KEY = re.compile(rf"topics/({TOPIC_ID})/([0-9]{{6,}})/([^/]+)")


class Verification:
    """One verification of one store."""

    def __init__(
        self, store: Store, environment: Environment, findings: Findings, *, lane: int | None = None
    ) -> None:
        self._store = store
        self._environment = environment
        self._findings = findings
        self._only = lane
        self._listed: list[ObjectEntry] = []

    async def run(self) -> None:
        """Read the store, and add what is wrong to the findings."""
        self._listed = await patiently(lambda: self._store.list(""), environment=self._environment)
        self._findings.bytes_expected = sum(
            entry.size for entry in self._listed if self._is_wanted(entry.key)
        )
        found = {lane for entry in self._listed if (lane := _lane_in(entry.key)) is not None}
        control: ControlState | None = None
        if self._only in (None, CONTROL_LANE):
            control = (await self._walk(CONTROL_LANE)).last_known
        lanes = found - {CONTROL_LANE}
        if control is not None:
            lanes |= {LaneId(i + 1) for i in range(control.lanes)}
        walks = [await self._walk(lane) for lane in sorted(lanes) if self._only in (None, lane)]
        if self._only is None:
            if control is not None:
                self._check_topics(control, walks)
            self._check_unnamed(walks)
            known = lanes if control is None else {LaneId(i + 1) for i in range(control.lanes)}
            self._check_strangers(known | {CONTROL_LANE})

    def _is_wanted(self, key: str) -> bool:
        return self._only is None or _lane_in(key) == self._only

    async def _walk(self, lane: LaneId) -> LaneWalk:
        """Walk one lane. Start again if a broker deleted objects that were still to be read."""
        before = self._findings.mark()
        for _ in range(WALKS_MAX):
            walk = LaneWalk(self._store, self._environment, lane, self._findings)
            try:
                await walk.run()
            except StoreMoved:
                self._findings.return_to(before)
            else:
                await self._check_logs(walk)
                return walk
        raise RetryError(
            f"lane {lane}: tried {WALKS_MAX} times, and each time a broker deleted objects that"
            " were not read yet: run the check again, or stop the broker first"
        )

    async def _check_logs(self, walk: LaneWalk) -> None:
        """Check logs and segments. In a damaged lane, read the segments of the last known state."""
        replaced = 0
        if isinstance(walk.state, LogState):
            for log in walk.state.partitions.values():
                for problem in (*tile_problems(log), *transaction_problems(log)):
                    self._findings.harm(partition_prefix(log.partition), problem)
        state, checked = walk.last_known, set[str]()
        for _ in range(WALKS_MAX):
            replaced = await self._check_segments(walk.lane, state, checked)
            if not replaced:
                return
            # A broker has merged them into other segments: check those instead.
            state = (await recover(self._store, self._environment, walk.lane, LogStateKind())).state
        self._findings.skipped += replaced

    async def _check_segments(self, lane: LaneId, state: object, checked: set[str]) -> int:
        """Read all segments that were not read before. Return how many are no longer needed."""
        replaced = 0
        logs = list(state.partitions.values()) if isinstance(state, LogState) else []
        for log in logs:
            for segment in list(log.segments):
                key = segment_key(log.partition, segment.name)
                if key not in checked:
                    checked.add(key)
                    replaced += not await self._check_segment(lane, log, segment)
        return replaced

    async def _check_segment(self, lane: LaneId, log: PartitionLog, segment: SegmentRef) -> bool:
        key = segment_key(log.partition, segment.name)
        try:
            data = await patiently(lambda: self._store.read(key), environment=self._environment)
        except ObjectNotFound:
            if not await self._is_named_still(lane, log.partition, segment):
                return False
            offsets = f"{segment.base_offset}..{segment.last_offset}"
            self._findings.harm(key, f"is missing; it held offsets {offsets}")
            return True
        self._findings.read(len(data))
        for problem in segment_problems(log, segment, data, key=key):
            self._findings.harm(key, problem)
        for problem in unreadable_batches(memoryview(data)[segment.data_start :]):
            self._findings.unreadable(key, f"{shown(log.partition)}: {problem}")
        return True

    async def _is_named_still(
        self, lane: LaneId, partition: PartitionId, segment: SegmentRef
    ) -> bool:
        """True if the lane still names a segment that is missing.

        Brokers delete a segment only after the lane has stopped naming it. So the lane is read
        before and after the search for the segment, and must name it both times.
        """
        key = segment_key(partition, segment.name)
        for _ in range(2):
            try:
                now = await recover(self._store, self._environment, lane, LogStateKind())
            except StopError:
                return True  # the walk has reported the damage
            named = {one.name for one in now.state.log_of(partition).segments}
            if segment.name not in named or await self._store.size(key) is not None:
                return False
        return True

    def _check_topics(self, control: ControlState, walks: list[LaneWalk]) -> None:
        """Check that each partition is in the lane that lane 0 names, and in no other."""
        lane_of = {
            partition: topic.lanes[partition.partition]
            for topic in (*control.topics.values(), *control.deleted.values())
            for partition in topic.partition_ids()
        }
        for walk in walks:
            logs = walk.state.partitions if isinstance(walk.state, LogState) else {}
            for partition in logs:
                expected = lane_of.get(partition)
                if expected is None:
                    self._findings.left_over(
                        partition_prefix(partition),
                        f"lane {walk.lane} holds this partition, but lane 0 (the control lane) has"
                        " no such topic",
                    )
                elif expected != walk.lane:
                    self._findings.harm(
                        partition_prefix(partition),
                        f"this partition is in lane {walk.lane}, but lane 0 (the control lane)"
                        f" says lane {expected}",
                    )

    def _check_unnamed(self, walks: list[LaneWalk]) -> None:
        """Find segments that no lane names: a crash or a fenced broker left them, or a broker is
        still writing them."""
        states = [walk.state for walk in walks]
        if not all(isinstance(state, LogState) for state in states):
            return  # a damaged object may have named them
        walk_of = {partition: walk for walk in walks for partition in walk.state.partitions}
        named = {
            segment_key(log.partition, segment.name)
            for state in states
            for log in state.partitions.values()
            for segment in log.segments
        }
        removed = {partition for state in states for partition in state.removed}
        for entry in self._listed:
            found = SEGMENT_KEY.fullmatch(entry.key)
            if found is None or entry.key in named:
                continue
            partition = PartitionId(UUID(found[1]), int(found[2]))
            walk = walk_of.get(partition)
            if partition in removed:
                problem = "belongs to a deleted topic; a broker will delete it"
            elif walk is None or walk.cursor is None:
                problem = "belongs to a partition that no lane holds"
            elif (claim_in(found[3]) or 0) >= walk.cursor.claim:
                problem = (
                    "its lane does not name it: a broker is still writing it, or has replaced it"
                    " and will delete it"
                )
            else:
                problem = "its lane does not name it: a broker stopped while writing it"
            self._findings.left_over(entry.key, problem)

    def _check_strangers(self, lanes: set[LaneId]) -> None:
        for entry in self._listed:
            lane = _lane_in(entry.key)
            if lane is None and SEGMENT_KEY.fullmatch(entry.key) is None:
                self._findings.left_over(entry.key, "not written by Holdfast")
            elif lane is not None and lane not in lanes:
                self._findings.left_over(
                    entry.key, f"belongs to lane {lane}, which this cluster does not have"
                )


def _lane_in(key: str) -> LaneId | None:
    found = LANE_KEY.fullmatch(key)
    return LaneId(int(found[1])) if found else None
