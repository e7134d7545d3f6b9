"""The rule for merging state runs: few runs, few dead rows, bounded work in each micro-batch.

Pure. Owns the rule. A micro-batch leaves at most one new run in a bucket, and its task merges older
runs into it. There must never be a background merge, because no entry might pin its result.

Dedup (entries are a set, so any runs may merge):

- A run whose latest entry is before the horizon is no longer named. Nothing is read for that.
- The new run takes in the newest runs as long as the next one has fewer than twice its rows. So
  each run that stays has at least twice the rows of the next one, and there are O(log rows) runs.
- One run of which at least half has expired is taken in, too, so the bytes stay within twice those
  of the live entries.

No micro-batch merges more than `merge_rows_max` rows besides its own (except for one larger run of
which half has expired). If that bound stops a merge, two adjacent runs have more rows than that
together, so there are at most 2 * rows / merge_rows_max + O(log merge_rows_max) runs.

Keyed rows (a later row of a key replaces an earlier one, so only adjacent runs merge): the same
doubling, and a merge of all runs once there are more than twice as many rows as live keys. Work is
amortised O(log) for each updated row, plus at most one rewrite of the bucket. A rewrite moves the
same bytes that a worker without a cache reads to load the bucket. More buckets make it smaller.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.keyed_state.pinned import TIME_MIN, RunInfo

MERGE_ROWS_MAX = 4_000_000
KEYED_ROWS_SPARED = 64
"""A number of dead rows that is too small to be worth a merge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePlan:
    """What a task does with the runs of its bucket."""

    stay: tuple[RunInfo, ...] = ()
    """Runs that are pinned again as they are, oldest first. The new run follows them."""
    merge: tuple[RunInfo, ...] = ()
    """Runs that go into the new run. In a keyed bucket, oldest first."""
    forget: tuple[RunInfo, ...] = ()
    """Runs of which everything has expired. They are no longer pinned."""


def plan_hash_merge(
    runs: Sequence[RunInfo],
    *,
    new_rows: int,
    horizon_ms: int,
    merge_rows_max: int = MERGE_ROWS_MAX,
) -> MergePlan:
    """Plan the merge of a dedup bucket, given how many entries this micro-batch adds."""
    forget = tuple(run for run in runs if run.time_max_ms < horizon_ms)
    live = [run for run in runs if run.time_max_ms >= horizon_ms]
    merge: list[RunInfo] = []
    expired = next((run for run in live if run.time_median_ms < horizon_ms), None)
    if expired is not None:
        live.remove(expired)
        merge.append(expired)
    rows = new_rows + sum(run.rows for run in merge)
    while live and live[-1].rows < 2 * rows and rows - new_rows + live[-1].rows <= merge_rows_max:
        merge.append(live.pop())
        rows += merge[-1].rows
    return MergePlan(stay=tuple(live), merge=tuple(merge), forget=forget)


def plan_keyed_merge(
    runs: Sequence[RunInfo], *, new_rows: int, live_keys: int, horizon_ms: int = TIME_MIN
) -> MergePlan:
    """Plan the merge of a keyed bucket, given the updated rows and the live keys afterwards."""
    forget = tuple(run for run in runs if run.time_max_ms < horizon_ms)
    stay = [run for run in runs if run.time_max_ms >= horizon_ms]
    total = new_rows + sum(run.rows for run in stay)
    if total > 2 * live_keys + KEYED_ROWS_SPARED:
        return MergePlan(merge=tuple(stay), forget=forget)
    merge: list[RunInfo] = []
    rows = new_rows
    while stay and stay[-1].rows < 2 * rows:
        merge.insert(0, stay.pop())
        rows += merge[0].rows
    return MergePlan(stay=tuple(stay), merge=tuple(merge), forget=forget)
