"""The plan of a backfill: from where to where in each partition, fixed by its first ledger entry.

Pure, except that it asks an Input. Owns the plan and its slices. A backfill that is run again must
finish the same plan, however the topic has grown, so the plan is stored with the first slice. Must
never take the ledger of another job for its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.errors import NOT_JSON, CallError, ConfigurationError, CorruptObject
from holdfast.landing.ledger_entry import Entry, MicroBatch, SourceRange
from holdfast.spark.source import offsets
from holdfast.spark.source.inputs import DataLoss, Input, Offsets, SourcePartition
from holdfast.spark.source.offsets import SourceOffset

METADATA = "backfill"
SLICE_RECORDS = 20_000_000


class BackfillRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks for, as far as it decides which records are meant."""

    topic: str
    from_offset: int | None = None
    to_offset: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    include_headers: bool = False

    def __post_init__(self) -> None:
        if self.from_offset is not None and self.from_ms is not None:
            raise ConfigurationError("use one of --from-offset and --from-time, not both")
        if self.to_offset is not None and self.to_ms is not None:
            raise ConfigurationError("use one of --to-offset and --to-time, not both")
        for name, first, last in (
            ("offset", self.from_offset, self.to_offset),
            ("time", self.from_ms, self.to_ms),
        ):
            if first is not None and last is not None and first >= last:
                raise ConfigurationError(
                    f"--from-{name} ({first}) must be less than --to-{name} ({last}), which is not"
                    " part of the range"
                )


class BackfillPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A backfill, as its first ledger entry stores it."""

    asked: BackfillRequest
    start: str
    """The start positions, in the text form of the source's offsets."""
    end: str

    def positions(self) -> tuple[Offsets, Offsets]:
        return positions_in(self.start), positions_in(self.end)

    def metadata(self) -> dict[str, str]:
        return {METADATA: msgspec.json.encode(self, order="sorted").decode()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """The next part of a plan: what one ledger entry commits."""

    number: int
    start: Offsets
    end: Offsets

    @property
    def records(self) -> int:
        return span(self.start, self.end)

    def micro_batch(self, topic: str) -> MicroBatch:
        source = SourceRange(start=_text(self.start), end=_text(self.end))
        return MicroBatch(query_id=f"backfill-{topic}", batch_id=self.number, sources=(source,))


def new_plan(
    asked: BackfillRequest, source: Input, partitions: list[SourcePartition]
) -> BackfillPlan:
    """Return a plan for the topic as it is now."""
    earliest, latest = source.earliest(partitions), source.latest(partitions)
    start, end = dict(earliest), dict(latest)
    if asked.from_offset is not None:
        _check_there(asked.from_offset, earliest)
        start = {where: min(asked.from_offset, latest[where]) for where in partitions}
    if asked.from_ms is not None:
        found = source.by_timestamp(dict.fromkeys(partitions, asked.from_ms))
        start = {w: latest[w] if n is None else max(n, earliest[w]) for w, n in found.items()}
    if asked.to_offset is not None:
        end = {where: min(asked.to_offset, latest[where]) for where in partitions}
    if asked.to_ms is not None:
        found = source.by_timestamp(dict.fromkeys(partitions, asked.to_ms))
        end = {where: latest[where] if n is None else n for where, n in found.items()}
    end = {where: max(end[where], start[where]) for where in partitions}
    return BackfillPlan(asked=asked, start=_text(start), end=_text(end))


def _check_there(from_offset: int, earliest: Offsets) -> None:
    gone = [where for where, first in earliest.items() if from_offset < first]
    if gone:
        where = gone[0]
        raise DataLoss(
            f"{where}: offsets {from_offset} to {earliest[where] - 1} are no longer in the log,"
            f" which starts at {earliest[where]} ({len(gone)} partitions lack some). To begin at"
            " the earliest record, remove --from-offset"
        )


def known_plan(first: Entry | None, asked: BackfillRequest) -> BackfillPlan | None:
    """Return the plan in a ledger's first entry; ConfigurationError if it is another job's."""
    if first is None:
        return None
    text = first.metadata.get(METADATA)
    if text is None:
        raise ConfigurationError(
            f"sink {first.sink_id} belongs to the pipeline with query id {first.query_id}, not to"
            " a backfill: choose another --sink-id"
        )
    try:
        plan = msgspec.json.decode(text, type=BackfillPlan)
    except (*NOT_JSON, CallError) as wrong:
        raise CorruptObject(
            f"entry 0 of sink {first.sink_id}: its plan cannot be read: {wrong}"
        ) from wrong
    if plan.asked != asked:
        raise ConfigurationError(
            f"sink {first.sink_id} belongs to another backfill ({_differences(plan.asked, asked)}):"
            " use the same range to finish that one, or choose another --sink-id"
        )
    return plan


def _differences(before: BackfillRequest, now: BackfillRequest) -> str:
    then, new = _plain(before), _plain(now)
    changed = [name for name in new if then[name] != new[name]]
    return ", ".join(f"{name} was {then[name]} and is now {new[name]}" for name in changed)


def _plain(asked: BackfillRequest) -> dict[str, Any]:
    return msgspec.structs.asdict(asked)


def next_slice(plan: BackfillPlan, head: Entry | None, records_max: int) -> Slice | None:
    """Return the slice after the newest entry, or None if all is committed."""
    start, end = plan.positions()
    number = 0
    if head is not None:
        start = positions_in(head.sources[0].end)
        number = head.batch_id + 1
    if set(start) != set(end):
        raise CorruptObject(
            "the newest entry of the ledger has other partitions than the plan of its first one:"
            " another job has written to this sink; choose another --sink-id"
        )
    if all(start[where] >= end[where] for where in end):
        return None
    return Slice(number=number, start=start, end=offsets.limited(start, end, records_max))


def span(start: Offsets, end: Offsets) -> int:
    """Return how many offsets lie in between; some of them may have no record."""
    return sum(max(0, end[where] - start[where]) for where in end)


def positions_in(text: str) -> Mapping[SourcePartition, int]:
    return offsets.from_json(msgspec.json.decode(text)).positions


def _text(positions: Offsets) -> str:
    return offsets.to_text(SourceOffset(positions))
