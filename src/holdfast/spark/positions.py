"""Offsets of Spark's log as the ledger compares them: where a micro-batch begins and ends.

Pure. Owns one question: does this micro-batch begin where the ledger ends? For the source
"holdfast", positions answer it, so a query with a new checkpoint can continue where another one
stopped. Offsets of other sources are compared as they are.
"""

import json
from collections.abc import Sequence

from holdfast.errors import CorruptObject
from holdfast.landing.ledger_entry import SourceRange
from holdfast.spark.source import offsets
from holdfast.spark.source.offsets import SourceOffset


def source_ranges(
    starts: Sequence[str | None] | None,
    ends: Sequence[str | None],
    ledger_ends: Sequence[str] | None,
) -> tuple[SourceRange, ...]:
    """Return the range of each source in a micro-batch.

    `starts` are the ends of the previous micro-batch, if there is one. `ledger_ends` are the
    positions after the newest entry. They say which partitions of a checkpoint's first micro-batch
    the ledger knows already.
    """
    ranges: list[SourceRange] = []
    for i, end in enumerate(ends):
        before = starts[i] if starts is not None and i < len(starts) else None
        known = ledger_ends[i] if ledger_ends is not None and i < len(ledger_ends) else None
        ranges.append(SourceRange(start=_start(before, end, known), end=_plain(end or "null")))
    return tuple(ranges)


def starting_offsets(ledger_end: str) -> str:
    """Return a ledger position as the option startingOffsets of a query with a new checkpoint.

    `ledger_end` is the end of a source in the newest ledger entry. Raises CorruptObject if it is
    not an offset of the source "holdfast".
    """
    found = _parsed(ledger_end)
    if found is None:
        raise CorruptObject(f"the ledger's position is not one of this source: {ledger_end[:200]}")
    topics: dict[str, dict[str, int]] = {}
    for where, offset in found.positions.items():
        topics.setdefault(where.topic, {})[str(where.partition)] = offset
    return json.dumps(topics, sort_keys=True)


def _start(before: str | None, end: str | None, known: str | None) -> str | None:
    if before is not None:
        return _plain(before)
    first = _parsed(end)
    if first is None or known is None:
        return None
    # Partitions that the ledger does not know may begin anywhere.
    there = _parsed(known)
    partitions = set(there.positions) if there is not None else set[object]()
    began = {where: n for where, n in first.since.items() if where in partitions}
    return offsets.to_text(SourceOffset(began))


def _plain(text: str) -> str:
    """Return the positions alone: `since` is no part of where a micro-batch ends."""
    found = _parsed(text)
    return text if found is None else offsets.to_text(SourceOffset(found.positions))


def _parsed(text: str | None) -> SourceOffset | None:
    """Return an offset of the source "holdfast", or None if it is another source's."""
    if text is None:
        return None
    try:
        return offsets.from_json(json.loads(text))
    except (CorruptObject, ValueError):
        return None
