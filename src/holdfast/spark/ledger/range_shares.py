"""Shares the ranges of a micro-batch out to a few tasks: about equal bytes, in order.

Pure. A range may be cut between stretches, that is, between record batches. The order of tasks is
the order of ranges, so that of two equal keys in one micro-batch the earlier offset stays first.
"""

import dataclasses
from collections.abc import Sequence

from holdfast.log.stored_batches import Stretch
from holdfast.spark.source.inputs import Range, StoreWhere
from holdfast.spark.source.task_split import TASK_BYTES_MIN


def shares(ranges: Sequence[Range], tasks_max: int) -> list[list[Range]]:
    """Divide ranges into at most `tasks_max` groups; fewer if there is little to read."""
    total = sum(wanted.size_bytes for wanted in ranges)
    tasks = max(1, min(tasks_max, total // TASK_BYTES_MIN))
    groups: list[list[Range]] = [[] for _ in range(tasks)]
    taken = 0
    for wanted in ranges:
        for task, piece in _cut(wanted, taken, total, tasks):
            groups[task].append(piece)
        taken += wanted.size_bytes
    return [group for group in groups if group]


def _cut(wanted: Range, taken: int, total: int, tasks: int) -> list[tuple[int, Range]]:
    where = wanted.where
    stretches = where.stretches if isinstance(where, StoreWhere) else ()
    if not isinstance(where, StoreWhere) or not stretches:
        return [(_task_at(taken, total, tasks), wanted)]
    pieces: list[tuple[int, list[Stretch]]] = []
    for stretch in stretches:
        task = _task_at(taken + stretch.size_bytes // 2, total, tasks)
        taken += stretch.size_bytes
        if not pieces or pieces[-1][0] != task:
            pieces.append((task, []))
        pieces[-1][1].append(stretch)
    cut: list[tuple[int, Range]] = []
    for i, (task, piece) in enumerate(pieces):
        is_last = i + 1 == len(pieces)
        part = dataclasses.replace(
            wanted,
            start_offset=max(wanted.start_offset, piece[0].base_offset)
            if i
            else wanted.start_offset,
            end_offset=wanted.end_offset if is_last else pieces[i + 1][1][0].base_offset,
            where=dataclasses.replace(where, stretches=tuple(piece)),
        )
        cut.append((task, part))
    return cut


def _task_at(position: int, total: int, tasks: int) -> int:
    return min(tasks - 1, position * tasks // total) if total else 0
