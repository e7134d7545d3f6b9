"""How far a query has read: a position for each partition, and all rules for moving positions.

Pure. Owns the JSON text in Spark's offset log. Spark compares offsets as text, so equal positions
must give equal text. Spark also writes whatever offset it is given, so nothing here may ever move a
position back.

An offset also says, under `since`, where those partitions began that the previous offset did not
have. So a micro-batch that runs again reads the same records, although Spark asks for the initial
offset again, and although the earliest offset of a new partition may have moved.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast
from uuid import UUID

from holdfast.errors import CorruptObject, InvariantViolation
from holdfast.spark.source.inputs import Offsets, SourcePartition

VERSION = 1
LISTED_MAX = 20
"""How many partitions one message names at most; a topic may have thousands."""


Positions = Offsets
"""A position for each partition of one incarnation of a topic."""


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """An offset of the source: for each partition, the next offset to read."""

    positions: Positions
    since: Positions = field(default_factory=dict[SourcePartition, int])
    """Where those partitions began that the previous offset did not have."""
    tick: int | None = None
    """The tick of tickInterval that the offset belongs to; no position depends on it."""


class OffsetRange(NamedTuple):
    """The records of one partition from `start` up to, but not including, `end`."""

    where: SourcePartition
    start: int
    end: int


class Changes(NamedTuple):
    """The difference between the topics of an offset and the topics that exist now."""

    appeared: list[SourcePartition]
    deleted: list[SourcePartition]
    recreated: list[tuple[SourcePartition, UUID | None]]
    """Partitions of the offset, each with the id that its topic's name has now."""


def initial(positions: Positions) -> SourceOffset:
    """Return the offset of a new query: all partitions begin here, and nothing is read yet."""
    return SourceOffset(dict(positions), dict(positions))


def to_json(offset: SourceOffset) -> dict[str, object]:
    """Return the value that Spark writes, with sorted keys: equal offsets give equal text."""
    value: dict[str, object] = {}
    if offset.since:
        value["since"] = _nested(offset.since)
    if offset.tick is not None:
        value["tick"] = offset.tick
    value["topics"] = _nested(offset.positions)
    value["version"] = VERSION
    return value


def to_text(offset: SourceOffset) -> str:
    """Return the canonical text: two texts are equal if and only if the offsets are equal."""
    return json.dumps(to_json(offset), sort_keys=True)


def from_json(value: object) -> SourceOffset:
    """Return the offset that `to_json` wrote; CorruptObject if the value is anything else."""
    try:
        fields = cast("dict[str, Any]", value)
        if fields["version"] != VERSION:
            raise CorruptObject(
                f"the offset in the checkpoint has version {fields['version']!r}; this Holdfast "
                f"knows version {VERSION}: use the release that wrote the checkpoint, or a newer"
            )
        tick = fields.get("tick")
        return SourceOffset(
            _flat(fields["topics"]),
            _flat(fields.get("since", {})),
            None if tick is None else int(tick),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as wrong:
        raise CorruptObject(
            f"the offset in the checkpoint is not one of this source: {str(value)[:500]} "
            f"({type(wrong).__name__}: {wrong})"
        ) from wrong


def _nested(positions: Positions) -> dict[str, object]:
    topics: dict[str, dict[str, Any]] = {}
    for where in sorted(positions, key=lambda w: (w.topic, str(w.partition))):
        topic_id = str(where.topic_id) if where.topic_id is not None else None
        topic = topics.setdefault(where.topic, {"id": topic_id, "partitions": {}})
        if topic["id"] != topic_id:
            raise InvariantViolation(
                f"one offset would hold two topics called {where.topic!r}: {topic['id']} and "
                f"{where.topic_id}"
            )
        topic["partitions"][str(where.partition)] = positions[where]
    return dict(topics)


def _flat(topics: Mapping[str, Any]) -> dict[SourcePartition, int]:
    return {
        SourcePartition(name, int(partition), _topic_id(topic["id"])): int(offset)
        for name, topic in topics.items()
        for partition, offset in topic["partitions"].items()
    }


def _topic_id(text: str | None) -> UUID | None:
    return None if text is None else UUID(text)


def by_name(where: SourcePartition) -> tuple[str, int, str]:
    """Return the key by which partitions are sorted in plans and messages."""
    return where.topic, where.partition, str(where.topic_id)


def changes(start: SourceOffset, now: Iterable[SourcePartition]) -> Changes:
    """Compare an offset with the partitions that exist now.

    A partition that is missing although its topic exists, with the same id, is not a change. The
    metadata is old: the number of partitions never shrinks.
    """
    there = set(now)
    ids = {where.topic: where.topic_id for where in there}
    absent = (w for w in start.positions if w.topic not in ids or ids[w.topic] != w.topic_id)
    missing = sorted(absent, key=by_name)
    return Changes(
        appeared=sorted(there - set(start.positions), key=by_name),
        deleted=[where for where in missing if where.topic not in ids],
        recreated=[(where, ids[where.topic]) for where in missing if where.topic in ids],
    )


def without(offset: SourceOffset, gone: Iterable[SourcePartition]) -> SourceOffset:
    """Return the offset without these partitions."""
    dropped = set(gone)
    return SourceOffset(
        {where: n for where, n in offset.positions.items() if where not in dropped},
        {where: n for where, n in _not_begun(offset).items() if where not in dropped},
        offset.tick,
    )


def joined(offset: SourceOffset, appeared: Positions) -> SourceOffset:
    """Return the offset with new partitions, of which no record is read yet."""
    since = {**_not_begun(offset), **appeared}
    return SourceOffset({**offset.positions, **appeared}, since, offset.tick)


def _not_begun(offset: SourceOffset) -> Positions:
    """Return the entries of `since` that the next offset must repeat: those not read from yet.

    The others must not be repeated, or the next micro-batch would read from there again.
    """
    return {where: n for where, n in offset.since.items() if offset.positions.get(where) == n}


def held(start: Positions, latest: Positions, served: Positions) -> dict[SourcePartition, int]:
    """Return the newest offset to offer for each partition, never below what was served."""
    return {
        where: max(position, latest.get(where, position), served.get(where, position))
        for where, position in start.items()
    }


def went_back(start: Positions, latest: Positions, served: Positions) -> list[OffsetRange]:
    """Return the partitions whose newest offset is below a served one, with both offsets."""
    highest = {where: max(n, served.get(where, n)) for where, n in start.items()}
    return [
        OffsetRange(where, latest[where], highest[where])
        for where in sorted(highest, key=by_name)
        if where in latest and latest[where] < highest[where]
    ]


def limited(start: Positions, target: Positions, most: int) -> dict[SourcePartition, int]:
    """Move from `start` towards `target` by at most `most` offsets in total.

    They are shared in proportion to what waits. No partition that has records starves: each moves
    by at least one, even if there are more such partitions than `most`. That is the only case in
    which the limit is exceeded.
    """
    waiting = {w: target[w] - n for w, n in start.items() if w in target and target[w] > n}
    total = sum(waiting.values())
    if total <= most:
        return {**start, **target}
    share = {where: max(1, most * size // total) for where, size in waiting.items()}
    left = max(most, len(waiting)) - sum(share.values())
    by_need = sorted(waiting, key=lambda w: (-(most * waiting[w] % total), by_name(w)))
    while left > 0:
        for where in by_need:
            if left > 0 and share[where] < waiting[where]:
                share[where] += 1
                left -= 1
    while left < 0:
        for where in sorted(share, key=lambda w: (-share[w], by_name(w))):
            if left < 0 and share[where] > 1:
                share[where] -= 1
                left += 1
    return {where: n + share.get(where, 0) for where, n in start.items()}


def waits_for_more(
    start: Positions, target: Positions, *, least: int, since_trigger_ms: int, delay_ms_max: int
) -> bool:
    """True if a micro-batch should wait because there is less than minOffsetsPerTrigger."""
    available = sum(max(0, target[where] - n) for where, n in start.items() if where in target)
    return available < least and since_trigger_ms < delay_ms_max


def moved(start: SourceOffset, positions: Positions, tick: int | None = None) -> SourceOffset:
    """Return the offset at these positions and this tick, or `start` itself if nothing changed.

    The clock may go back, the tick does not. If a partition of `start` has not moved since it
    appeared, its entry in `since` is repeated: `start` may be an initial offset, which is in no
    log.
    """
    back = [where for where, n in start.positions.items() if positions.get(where, n) < n]
    if back:
        raise InvariantViolation(
            f"{back[0]} would go back from offset {start.positions[back[0]]} to "
            f"{positions[back[0]]}"
        )
    if tick is not None and start.tick is not None:
        tick = max(tick, start.tick)
    if dict(start.positions) == dict(positions) and start.tick == tick:
        return start
    since = {w: n for w, n in _not_begun(start).items() if w in positions}
    return SourceOffset(dict(positions), since, tick)


def ranges(start: SourceOffset, end: SourceOffset) -> list[OffsetRange]:
    """Return what a micro-batch reads, without empty ranges; the same each time it is run."""
    found: list[OffsetRange] = []
    for where in sorted(end.positions, key=by_name):
        first = end.since.get(where, start.positions.get(where))
        if first is None or first > end.positions[where]:
            raise InvariantViolation(
                f"{where} (topic id {where.topic_id}): the micro-batch ends at offset "
                f"{end.positions[where]} and starts at {first}; the checkpoint was changed by "
                f"something else than this source"
            )
        if first < end.positions[where]:
            found.append(OffsetRange(where, first, end.positions[where]))
    return found


def lost(wanted: Iterable[OffsetRange], earliest: Positions) -> list[OffsetRange]:
    """Return the part of each range that is gone: below the earliest offset, or with its topic."""
    gone = [OffsetRange(r.where, r.start, min(r.end, earliest.get(r.where, r.end))) for r in wanted]
    return [r for r in gone if r.start < r.end]


def past_the_end(wanted: Iterable[OffsetRange], latest: Positions) -> list[OffsetRange]:
    """Return the part of each range that the log does not have, or not yet."""
    beyond = [OffsetRange(r.where, max(r.start, latest.get(r.where, 0)), r.end) for r in wanted]
    return [r for r in beyond if r.start < r.end]


def remaining(wanted: Iterable[OffsetRange], gone: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the ranges without the parts that are gone from their start or their end."""
    cut = list(wanted)
    for hole in gone:
        cut = [
            r
            if r.where != hole.where
            else r._replace(start=max(r.start, hole.end))
            if hole.start <= r.start
            else r._replace(end=min(r.end, hole.start))
            for r in cut
        ]
    return [r for r in cut if r.start < r.end]


def listed(found: Iterable[OffsetRange]) -> str:
    """Return a text with the exact records, as in "orders-0 offsets 5 to 9 (5 records), ..."."""
    rows = list(found)
    names = [
        f"{r.where} offsets {r.start} to {r.end - 1} ({r.end - r.start} records)"
        for r in rows[:LISTED_MAX]
    ]
    if len(rows) > LISTED_MAX:
        more = sum(r.end - r.start for r in rows[LISTED_MAX:])
        names.append(f"and {more} records of {len(rows) - LISTED_MAX} more partitions")
    return ", ".join(names)


def count(found: Iterable[OffsetRange]) -> int:
    """Return how many offsets these ranges span."""
    return sum(r.end - r.start for r in found)
