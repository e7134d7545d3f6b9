"""The loops over hashes that numpy cannot express: search, first occurrence, merge.

Pure, compiled by numba on first use and cached. Does not own the meaning of a duplicate, which
dedup.py defines. Plain for speed: no objects and no allocation, callers pass in all arrays. Must
never index past an array: every bound comes from the arrays' own lengths.
"""

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from holdfast.columnar.compiled import kernel

TIME_MIN = np.int64(-(2**63))
TIME_MAX = np.int64(2**63 - 1)
_CELL_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_MIX_FACTOR = np.uint64(0xD6E8FEB86659FD93)

Number = TypeVar("Number", bound=np.generic)


def read_only(array: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """Return a read-only view, so that kernels compile for one kind of argument only."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


@kernel
def _minus(time: Any, span: Any) -> Any:
    return TIME_MIN if time < TIME_MIN + span else time - span


@kernel
def _plus(time: Any, span: Any) -> Any:
    return TIME_MAX if time > TIME_MAX - span else time + span


@kernel
def mark_seen(
    run_high: Any,
    run_low: Any,
    run_time: Any,
    starts: Any,
    shift: Any,
    high: Any,
    low: Any,
    time: Any,
    within: Any,
    horizon: Any,
    seen: Any,
) -> None:
    """Mark the rows that have a live entry in the run no further than `within` from them.

    A negative `within` means for ever. `starts` holds, for each value of the top bits of the high
    half, the position of its first entry.
    """
    for i in range(high.size):
        if seen[i]:
            continue
        wanted_high = high[i]
        wanted_low = low[i]
        least = TIME_MIN
        most = TIME_MAX
        if within >= 0:
            least = max(_minus(time[i], within), horizon)
            most = _plus(time[i], within)
        slot = np.int64(wanted_high >> shift)
        a = starts[slot]
        b = starts[slot + 1]
        while a < b:
            middle = (a + b) >> 1
            there = run_high[middle]
            if there < wanted_high:
                a = middle + 1
            elif there > wanted_high:
                b = middle
            elif run_low[middle] < wanted_low or (
                run_low[middle] == wanted_low and run_time[middle] < least
            ):
                a = middle + 1
            else:
                b = middle
        if a < run_high.size and run_high[a] == wanted_high and run_low[a] == wanted_low:
            seen[i] = run_time[a] <= most


@kernel
def _slot_of(high: Any, cell: Any, shift: Any) -> Any:
    return np.int64(((high + np.uint64(cell) * _CELL_FACTOR) * _MIX_FACTOR) >> shift)


@kernel
def _is_near(
    slots: Any, slot: Any, high: Any, low: Any, time: Any, row: Any, least: Any, most: Any
) -> Any:
    mask = slots.size - 1
    while slots[slot] >= 0:
        other = slots[slot]
        if high[other] == high[row] and low[other] == low[row] and least <= time[other] <= most:
            return True
        slot = (slot + 1) & mask
    return False


@kernel
def keep_first(
    high: Any,
    low: Any,
    time: Any,
    sequence: Any,
    seen: Any,
    within: Any,
    late_before: Any,
    divert: Any,
    slots: Any,
    shift: Any,
    keep: Any,
    late: Any,
) -> None:
    """Go through the unseen rows in sequence, and keep each that has no kept row near it.

    Kept times of one key are more than `within` apart, so a time cell of that width holds at most
    one, and three cells are enough to look at. `slots` is a hash table of kept rows, initially all
    -1.
    """
    mask = slots.size - 1
    for position in range(high.size):
        row = sequence[position] if sequence.size else position
        if seen[row]:
            continue
        least = TIME_MIN
        most = TIME_MAX
        cell = np.int64(0)
        if within >= 0:
            least = _minus(time[row], within)
            most = _plus(time[row], within)
            cell = time[row] // (within + 1)
        if _is_near(slots, _slot_of(high[row], cell, shift), high, low, time, row, least, most):
            continue
        if within >= 0:
            before = _slot_of(high[row], cell - 1, shift)
            if _is_near(slots, before, high, low, time, row, least, most):
                continue
            after = _slot_of(high[row], cell + 1, shift)
            if _is_near(slots, after, high, low, time, row, least, most):
                continue
        if time[row] < late_before:
            late[row] = True
            if divert:
                continue
        keep[row] = True
        slot = _slot_of(high[row], cell, shift)
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = row


@kernel
def merge_two(
    a_high: Any,
    a_low: Any,
    a_time: Any,
    b_high: Any,
    b_low: Any,
    b_time: Any,
    horizon: Any,
    high: Any,
    low: Any,
    time: Any,
) -> Any:
    """Merge two sorted runs without entries before the horizon. Return the number of rows."""
    i = j = count = 0
    while i < a_high.size or j < b_high.size:
        from_a = j >= b_high.size
        if i < a_high.size and j < b_high.size:
            if a_high[i] != b_high[j]:
                from_a = a_high[i] < b_high[j]
            elif a_low[i] != b_low[j]:
                from_a = a_low[i] < b_low[j]
            else:
                from_a = a_time[i] <= b_time[j]
        if from_a:
            if a_time[i] >= horizon:
                high[count] = a_high[i]
                low[count] = a_low[i]
                time[count] = a_time[i]
                count += 1
            i += 1
        else:
            if b_time[j] >= horizon:
                high[count] = b_high[j]
                low[count] = b_low[j]
                time[count] = b_time[j]
                count += 1
            j += 1
    return count


@kernel
def find_rows(run_high: Any, run_low: Any, high: Any, low: Any, found: Any) -> None:
    """Find for each hash its row in the sorted run, or -1."""
    for i in range(high.size):
        a = 0
        b = run_high.size
        while a < b:
            middle = (a + b) >> 1
            if run_high[middle] < high[i] or (
                run_high[middle] == high[i] and run_low[middle] < low[i]
            ):
                a = middle + 1
            else:
                b = middle
        found[i] = -1
        if a < run_high.size and run_high[a] == high[i] and run_low[a] == low[i]:
            found[i] = a


@kernel
def overlay_order(a_high: Any, a_low: Any, b_high: Any, b_low: Any, taken: Any) -> Any:
    """Fill `taken` with rows of a followed by b, in hash order. For a key in both, take b's row.

    Both are sorted and have each key once. Returns the number of rows of `taken` that are filled.
    """
    i = j = count = 0
    while i < a_high.size or j < b_high.size:
        if j >= b_high.size:
            taken[count] = i
            i += 1
        elif i >= a_high.size:
            taken[count] = a_high.size + j
            j += 1
        elif a_high[i] == b_high[j] and a_low[i] == b_low[j]:
            taken[count] = a_high.size + j
            i += 1
            j += 1
        elif a_high[i] < b_high[j] or (a_high[i] == b_high[j] and a_low[i] < b_low[j]):
            taken[count] = i
            i += 1
        else:
            taken[count] = a_high.size + j
            j += 1
        count += 1
    return count
