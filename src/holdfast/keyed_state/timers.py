"""Timers by key on the wall clock: one row for each key that had no event for some time.

Pure. Owns the rule. `now_ms` is the wall clock of the micro-batch, which Spark logs with its
offsets, so a replay fires the same timers:

- A key with an event in the micro-batch is armed, or armed again: its deadline is now + after. An
  event counts as earlier than the timer, so such a key is not due in the same micro-batch.
- Any other key whose deadline is not after now is due: it is output once and forgotten.
- A key that comes back after that is armed like a new one.

The state is pinned with the micro-batch that fired, so a timer must never be lost or fire twice. A
bucket without records has to be examined as well, unless `may_be_due` says otherwise.
"""

from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from holdfast.columnar.arrow import pa
from holdfast.errors import CallError
from holdfast.keyed_state.keyed_rows import (
    KeyedBucket,
    KeyedRun,
    Table,
    check_columns,
    group_rows,
    overlay,
    tombstones,
)
from holdfast.keyed_state.pinned import SPAN_MS_MAX, TIME_MIN, Hashes, Operator, Pinned

KIND = "timer"


class TimerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The columns to output for a key that had no event for `after_ms`."""

    key_columns: tuple[str, ...]
    after_ms: int

    def __post_init__(self) -> None:
        if not 0 < self.after_ms <= SPAN_MS_MAX:
            raise CallError(f"timer: after_ms is {self.after_ms}; use 1 to {SPAN_MS_MAX}")
        if not self.key_columns:
            raise CallError("timer: name at least one key column")

    def operator(self, **parameters: object) -> Operator:
        """Return the operator for the ledger to pin."""
        mine = {"key_columns": list(self.key_columns), "after_ms": self.after_ms}
        return Operator(kind=KIND, parameters={**parameters, **mine})


@dataclass(frozen=True, slots=True, kw_only=True)
class TimersFired:
    """The keys that are due, and the changes of the state."""

    due: KeyedRun | None
    """The keys that are due, with their deadlines. None if there are none."""
    updated: KeyedRun | None
    """Armed keys, and tombstones of those that fired. None if nothing changed."""
    live_keys: int


def fire_timers(
    bucket: KeyedBucket,
    hashes: tuple[Hashes, Hashes],
    columns: Table,
    order: npt.NDArray[np.int64] | None = None,
    *,
    settings: TimerSettings,
    now_ms: int,
) -> TimersFired:
    """Arm the keys of the micro-batch, and fire those of the other keys that are due."""
    check_columns(columns, settings.key_columns, hashes[0].size)
    groups = group_rows(hashes, order)
    firsts = pa.array(groups.sequence[groups.starts])
    armed = KeyedRun(
        high=groups.high,
        low=groups.low,
        time=np.full(groups.high.size, now_ms + settings.after_ms, np.int64),
        deleted=np.zeros(groups.high.size, np.bool_),
        columns=columns.select(list(settings.key_columns)).take(firsts).combine_chunks(),
    )
    live = bucket.newest
    if live is None:
        return TimersFired(due=None, updated=armed if armed.rows else None, live_keys=armed.rows)
    touched = live.find(armed.high, armed.low)
    is_due = live.time <= now_ms
    is_due[touched[touched >= 0]] = False
    due = live.where(is_due)
    live_keys = live.rows - due.rows + int(np.count_nonzero(touched < 0))
    if not due.rows:
        return TimersFired(due=None, updated=armed if armed.rows else None, live_keys=live_keys)
    updated = tombstones(due)
    if armed.rows:
        updated = overlay([updated, armed], horizon_ms=TIME_MIN, all_of_them=False)
    return TimersFired(due=due, updated=updated, live_keys=live_keys)


def may_be_due(pinned: Pinned, bucket: int, *, now_ms: int) -> bool:
    """True if a timer may be due in a bucket without records. False is certain."""
    return any(run.time_min_ms <= now_ms for run in pinned.runs[bucket])
