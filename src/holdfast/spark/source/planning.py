"""Decides what a query reads next: its options and positions against what an Input has now.

Owns the decisions of one running query, in the process that plans it. Needs no Spark. Must never
offer an offset below one that it has offered, nor skip records without saying which.
"""

import logging
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.environment import Environment
from holdfast.errors import ConfigurationError
from holdfast.spark.source import offsets
from holdfast.spark.source.inputs import (
    DataLoss,
    Input,
    PlanOptions,
    Range,
    SourcePartition,
    TopicInfo,
)
from holdfast.spark.source.offsets import OffsetRange, Positions, SourceOffset
from holdfast.spark.source.options import (
    EARLIEST,
    LATEST,
    Assign,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Bound,
    End,
    NoMatch,
    OnUnreadable,
    SourceOptions,
    Subscribe,
    SubscribePattern,
)

LOGGER = logging.getLogger("holdfast.spark.source.planning")

LOOKS_MAX = 3
"""How many looks must miss a topic before it counts as deleted: metadata may lag."""
LOOK_PAUSE_S = 0.5
END_PAUSE_S = 0.2
END_WAIT_S_MAX = 30.0
"""How long a micro-batch waits if the log ends before what the checkpoint promises."""
TOLD_MAX = 1_000
REMEDY = (
    'To go on without them, set failOnDataLoss to "false"; to read them, restore the data or start '
    "a new query with a new checkpoint"
)


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)


@dataclass(slots=True, kw_only=True)
class Planner:
    """The planner of one query, with its view of the input. For one thread."""

    options: SourceOptions
    source: Input
    environment: Environment
    pause: Callable[[float], None] = _wait
    _served: dict[SourcePartition, int] = field(default_factory=dict[SourcePartition, int])
    _latest: dict[SourcePartition, int] = field(default_factory=dict[SourcePartition, int])
    _target: SourceOffset | None = None
    _is_available_now: bool = False
    _last_tick: int | None = None
    """The only tick of a query that reads what is available now."""
    _last_trigger_s: float | None = None
    _told: set[str] = field(default_factory=set[str])

    def initial_offset(self) -> SourceOffset:
        """Return where a new query begins; ConfigurationError if the options cannot be met."""
        partitions = self._selected_or_refuse()
        start = self._resolve(self.options.starting, partitions, is_start=True)
        if isinstance(self.options.starting, AtOffsets):
            latest = self.source.latest(partitions)
            for where in partitions:
                if start[where] > latest[where]:
                    raise ConfigurationError(
                        f"startingOffsets has {start[where]} for {where}, but its log ends at "
                        f"{latest[where]}: use an offset up to {latest[where]}, or -1 for the end"
                    )
        return offsets.initial(start)

    def prepare_for_available_now(self) -> None:
        """End the query at what its next look at the input finds."""
        self._is_available_now = True
        self._target = None
        self._last_tick = self._tick()

    def next_offset(
        self, start: SourceOffset, *, most: int | None, least: int | None
    ) -> SourceOffset:
        """Return where the next micro-batch ends, or `start` if there is nothing to read yet."""
        now = self.environment.monotonic()
        begun, target = self._look(start)
        if least is not None and not self._is_available_now:
            waited = None if self._last_trigger_s is None else now - self._last_trigger_s
            if waited is not None and offsets.waits_for_more(
                begun.positions,
                target,
                least=least,
                since_trigger_ms=int(waited * 1000),
                delay_ms_max=self.options.trigger_delay_ms_max,
            ):
                return start
        self._last_trigger_s = now
        end = target if most is None else offsets.limited(begun.positions, target, most)
        self._served.update(end)
        tick = self._tick() if self._last_tick is None else self._last_tick
        end_offset = offsets.moved(begun, end, tick)
        return start if end_offset == start else end_offset

    def _tick(self) -> int | None:
        """Return the number of the current tick, or None without tickInterval.

        It makes offsets differ although no records came, so that a micro-batch runs and checks
        timers.
        """
        every_ms = self.options.tick_ms
        return None if every_ms is None else self.environment.now_ms() // every_ms

    def newest_offset(self) -> SourceOffset | None:
        """Return the newest offsets of the last look, for the query's progress."""
        return SourceOffset(dict(self._latest)) if self._latest else None

    def stream_ranges(self, start: SourceOffset, end: SourceOffset) -> list[Range]:
        """Return the tasks of a micro-batch."""
        wanted = offsets.ranges(start, end)
        return self._plan(wanted, end_wait_s_max=END_WAIT_S_MAX) if wanted else []

    def batch_ranges(self) -> list[Range]:
        """Return the tasks of a batch query."""
        partitions = self._selected_or_refuse()
        start = self._resolve(self.options.starting, partitions, is_start=True)
        end = self._resolve(self.options.ending, partitions, is_start=False)
        clip = self.options.row_filter.clip
        clipped = [
            OffsetRange(w, *clip(w.topic, w.partition, start[w], end[w])) for w in partitions
        ]
        wanted = [r for r in clipped if r.start < r.end]
        return self._plan(wanted, end_wait_s_max=0.0) if wanted else []

    def _look(self, start: SourceOffset) -> tuple[SourceOffset, Mapping[SourcePartition, int]]:
        """Return `start` with the partitions that exist now, and the newest offsets to offer."""
        if self._is_available_now and self._target is not None:
            gone = set(start.positions) - set(self._target.positions)
            appeared = {w: n for w, n in self._target.since.items() if w not in start.positions}
            # Without a change, `start` must stay as it is: a new offset means a new micro-batch.
            kept = offsets.without(start, gone) if gone else start
            return offsets.joined(kept, appeared) if appeared else kept, self._target.positions
        for _ in range(LOOKS_MAX - 1):
            try:
                return self._look_once(start, is_last=False)
            except _LookAgain:
                self.pause(LOOK_PAUSE_S)
        return self._look_once(start, is_last=True)

    def _look_once(
        self, start: SourceOffset, *, is_last: bool
    ) -> tuple[SourceOffset, Mapping[SourcePartition, int]]:
        now = selected(self.source.topics(), self.options.selection)
        changed = offsets.changes(start, now)
        if (changed.deleted or changed.recreated) and not is_last:
            raise _LookAgain
        begun = start
        if changed.deleted or changed.recreated:
            self._say_gone(changed, start)
            gone = [*changed.deleted, *(where for where, _ in changed.recreated)]
            begun = offsets.without(start, gone)
        try:
            if changed.appeared:
                begun = offsets.joined(begun, self.source.earliest(changed.appeared))
            known = set(now)
            self._latest = self.source.latest([w for w in begun.positions if w in known])
        except DataLoss as problem:
            if not is_last:
                raise _LookAgain from None
            # A topic was deleted just now, or the end went back. If so, a later look says which.
            self._warn("nothing_read_yet", str(problem))
            return start, dict(start.positions)
        back = offsets.went_back(begun.positions, self._latest, self._served)
        if back:
            self._warn(
                "newest_offset_went_back",
                f"the log ends before offsets that were served; nothing is read from these "
                f"partitions until it has grown again: {offsets.listed(back)}",
            )
        target = offsets.held(begun.positions, self._latest, self._served)
        if self._is_available_now:
            self._target = SourceOffset(target, begun.since)
        return begun, target

    def _say_gone(self, changed: offsets.Changes, start: SourceOffset) -> None:
        rows = [
            f"{where} (topic id {where.topic_id}) was deleted, or is no longer subscribed to; "
            f"read up to offset {start.positions[where]}"
            for where in changed.deleted
        ]
        rows += [
            f"{where} was deleted and created again (topic id {where.topic_id}, now {topic_id}); "
            f"read up to offset {start.positions[where]} of the old one"
            for where, topic_id in changed.recreated
        ]
        message = "; ".join(rows[: offsets.LISTED_MAX])
        if self.options.fail_on_data_loss:
            raise DataLoss(f"records were deleted before they were read: {message}. {REMEDY}")
        self._warn(
            "topics_gone", f"{message}. A topic that was created again is read from its start"
        )

    def _plan(self, wanted: list[OffsetRange], *, end_wait_s_max: float) -> list[Range]:
        there = self._still_there(wanted)
        gone = offsets.lost(wanted, self.source.earliest(there))
        if gone:
            self._say_lost("are gone from the log", gone)
            wanted = offsets.remaining(wanted, gone)
        beyond = self._wait_for_end(wanted, end_wait_s_max)
        if beyond:
            self._say_lost("are past the end of the log", beyond)
            wanted = offsets.remaining(wanted, beyond)
        # Only now: records that are gone have unknown times, so they may have been wanted.
        return self._cut(self._new_enough(wanted))

    def _new_enough(self, wanted: list[OffsetRange]) -> list[OffsetRange]:
        """Return the ranges from the first record that is new enough for the row filter.

        No record before it can be wanted; any record after it can.
        """
        least_ms = self.options.row_filter.timestamp_min_ms
        if least_ms is None:
            return wanted
        first = self.source.by_timestamp({r.where: least_ms for r in wanted})
        starts = {r.where: r.end if (n := first[r.where]) is None else n for r in wanted}
        moved = [OffsetRange(r.where, max(r.start, starts[r.where]), r.end) for r in wanted]
        return [r for r in moved if r.start < r.end]

    def _still_there(self, wanted: Sequence[OffsetRange]) -> list[SourcePartition]:
        looks = 1
        topics = self.source.topics()
        while looks < LOOKS_MAX and not all(_is_there(r.where, topics) for r in wanted):
            self.pause(LOOK_PAUSE_S)
            topics = self.source.topics()
            looks += 1
        return [r.where for r in wanted if _is_there(r.where, topics)]

    def _wait_for_end(self, wanted: Sequence[OffsetRange], wait_s_max: float) -> list[OffsetRange]:
        deadline = self.environment.monotonic() + wait_s_max
        where = [r.where for r in wanted]
        while True:
            is_over = self.environment.monotonic() >= deadline
            try:
                beyond = offsets.past_the_end(wanted, self.source.latest(where))
            except DataLoss:
                if is_over:
                    raise
            else:
                if is_over or not beyond:
                    return beyond
                self._warn(
                    "waiting_for_end",
                    f"the log ends before what the checkpoint promises; waiting for it: "
                    f"{offsets.listed(beyond)}",
                )
            self.pause(END_PAUSE_S)
            self.source.topics()

    def _cut(self, wanted: Sequence[OffsetRange]) -> list[Range]:
        """Divide ranges into tasks: each partition in slices of at most maxRecordsPerPartition."""
        most = self.options.records_per_partition_max
        rounds: list[list[OffsetRange]] = []
        for r in wanted:
            step = most or (r.end - r.start)
            for i, first in enumerate(range(r.start, r.end, step)):
                if i == len(rounds):
                    rounds.append([])
                rounds[i].append(OffsetRange(r.where, first, min(first + step, r.end)))
        tasks = self.options.partitions_min or 1
        plan = PlanOptions(
            min_partitions=-(-tasks // max(1, len(rounds))),
            include_headers=self.options.include_headers,
            fail_on_data_loss=self.options.fail_on_data_loss,
            fail_on_unreadable=self.options.on_unreadable is OnUnreadable.FAIL,
            quarantine_store=self.options.quarantine_store,
            row_filter=self.options.row_filter,
        )
        planned: list[Range] = []
        for some in rounds:
            start, end = {r.where: r.start for r in some}, {r.where: r.end for r in some}
            planned += self.source.plan(start, end, plan)
        return planned

    def _say_lost(self, how: str, gone: Sequence[OffsetRange]) -> None:
        message = f"{offsets.count(gone)} records {how}: {offsets.listed(gone)}"
        if self.options.fail_on_data_loss:
            raise DataLoss(f"{message}. {REMEDY}")
        self._warn("records_skipped", message)

    def _warn(self, event: str, message: str) -> None:
        """Log a warning once for each message, not once for each micro-batch."""
        if message not in self._told:
            if len(self._told) >= TOLD_MAX:
                self._told.clear()
            self._told.add(message)
            LOGGER.warning("%s: %s", event, message)

    def _selected_or_refuse(self) -> list[SourcePartition]:
        topics = self.source.topics()
        missing: list[str] = []
        match self.options.selection:
            case Subscribe(names):
                missing = [repr(name) for name in names if name not in topics]
            case Assign(assigned):
                missing = [
                    f"{name}-{partition}"
                    for name, partitions in assigned.items()
                    for partition in partitions
                    if name not in topics or partition >= topics[name].partitions
                ]
            case SubscribePattern():
                pass
        if missing:
            known = ", ".join(repr(name) for name in sorted(topics)[: offsets.LISTED_MAX]) or "none"
            raise ConfigurationError(f"there is no {', '.join(missing)}; existing topics: {known}")
        return selected(topics, self.options.selection)

    def _resolve(
        self, bound: Bound, partitions: Sequence[SourcePartition], *, is_start: bool
    ) -> dict[SourcePartition, int]:
        match bound:
            case End.EARLIEST:
                return dict(self.source.earliest(partitions))
            case End.LATEST:
                return dict(self.source.latest(partitions))
            case AtOffsets(wanted):
                given = _by_partition(wanted, partitions, is_start=is_start)
                ends = {
                    EARLIEST: self.source.earliest([w for w in given if given[w] == EARLIEST]),
                    LATEST: self.source.latest([w for w in given if given[w] == LATEST]),
                }
                return {w: ends[n][w] if n in ends else n for w, n in given.items()}
            case AtTimestamp(timestamp):
                return self._at_times(dict.fromkeys(partitions, timestamp), is_start=is_start)
            case AtTimestamps(wanted):
                given = _by_partition(wanted, partitions, is_start=is_start)
                return self._at_times(given, is_start=is_start)

    def _at_times(self, times: Positions, *, is_start: bool) -> dict[SourcePartition, int]:
        found = self.source.by_timestamp(times)
        unmatched = [where for where, offset in found.items() if offset is None]
        if unmatched and is_start and self.options.no_match is NoMatch.ERROR:
            first = unmatched[0]
            raise ConfigurationError(
                f"{first} has no record at or after timestamp {times[first]} "
                f"({len(unmatched)} partitions have none); to start at the end there, set "
                f'startingOffsetsByTimestampStrategy to "latest"'
            )
        latest = self.source.latest(unmatched)
        return {w: latest[w] if offset is None else offset for w, offset in found.items()}


class _LookAgain(Exception):
    """Raised to look again: what the last look saw may be a passing state."""


def selected(
    topics: Mapping[str, TopicInfo], selection: Subscribe | SubscribePattern | Assign
) -> list[SourcePartition]:
    """Return the partitions that a query reads, out of the topics that exist."""
    match selection:
        case Subscribe(names):
            found = [topics[name] for name in names if name in topics]
        case SubscribePattern(pattern):
            found = [topics[name] for name in topics if re.fullmatch(pattern, name)]
        case Assign(assigned):
            found = [topics[name] for name in assigned if name in topics]
    partitions = [where for topic in found for where in topic.all_partitions()]
    if isinstance(selection, Assign):
        wanted = selection.partitions
        partitions = [where for where in partitions if where.partition in wanted[where.topic]]
    return sorted(partitions, key=offsets.by_name)


def _is_there(where: SourcePartition, topics: Mapping[str, TopicInfo]) -> bool:
    topic = topics.get(where.topic)
    return topic is not None and topic.topic_id == where.topic_id


def _by_partition(
    wanted: Mapping[tuple[str, int], int], partitions: Sequence[SourcePartition], *, is_start: bool
) -> dict[SourcePartition, int]:
    side = "starting" if is_start else "ending"
    known = {(where.topic, where.partition): where for where in partitions}
    for topic, partition in sorted({*wanted} ^ {*known}):
        problem = (
            "has no number (every partition needs one; for offsets, -2 is earliest and -1 latest)"
            if (topic, partition) in known
            else "is not among the partitions that the query reads"
        )
        raise ConfigurationError(f"{side} offsets or timestamps: {topic}-{partition} {problem}")
    return {where: wanted[key] for key, where in known.items()}
