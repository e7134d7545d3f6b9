"""Dedup on pinned runs against a plain model: any batches, crashes, replays, expiry and merges."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.environment import SeededEnvironment, VirtualClock
from holdfast.keyed_state.cache import StateCache
from holdfast.keyed_state.dedup import Bucket, DedupSettings, LatePolicy
from holdfast.keyed_state.dedup_task import DedupDone, run_dedup_task
from holdfast.keyed_state.pinned import (
    bucket_of,
    decode_pinned,
    encode_pinned,
    next_watermark,
    nothing_pinned,
)
from holdfast.keyed_state.task_site import TaskSite
from holdfast.store.memory import MemoryStore

BUCKETS = 2
Row = tuple[int, int]
"""A key and an event time."""


@dataclass
class Model:
    """The rule of dedup.py over plain lists, with nothing ever merged."""

    rule: DedupSettings
    kept: list[Row] = field(default_factory=list[Row])
    watermark: int | None = None

    def judge(self, rows: list[Row]) -> Iterator[str]:
        within, watermark = self.rule.within_ms, self.watermark
        late_before = horizon = None
        if within is not None and watermark is not None:
            lateness = within if self.rule.lateness_ms is None else self.rule.lateness_ms
            late_before = watermark - lateness
            horizon = late_before - within
        remembered = [row for row in self.kept if horizon is None or row[1] >= horizon]
        for key, time in rows:
            if any(k == key and (within is None or abs(t - time) <= within) for k, t in remembered):
                yield "duplicate"
                continue
            is_late = late_before is not None and time < late_before
            if is_late and self.rule.late is LatePolicy.DIVERT:
                yield "diverted"
                continue
            remembered.append((key, time))
            self.kept.append((key, time))
            yield "late" if is_late else "kept"


class Sink:
    """A sink with its ledger in a variable, and workers that come and go."""

    def __init__(self, rule: DedupSettings, merge_rows_max: int) -> None:
        self.rule = rule
        self.environment = SeededEnvironment(seed=1, clock=VirtualClock())
        self.store = MemoryStore(environment=self.environment)
        self.pinned = nothing_pinned(rule.operator(key="id"), buckets=BUCKETS, hash_seed=1)
        self.cache: StateCache[Bucket] = StateCache()
        self.attempts = 0
        self.number = 0
        self.merge_rows_max = merge_rows_max

    def attempt(self, rows: list[Row]) -> tuple[list[str], dict[int, DedupDone]]:
        self.attempts += 1
        keys = np.array([key for key, _ in rows], np.uint64)
        # Neighbours share their high half: ties must be told apart by the low one.
        high, low = (keys >> np.uint64(2)) << np.uint64(61), keys * np.uint64(0x9E3779B97F4A7C15)
        times = np.array([time for _, time in rows], np.int64)
        buckets = bucket_of(low, BUCKETS)
        fates = [""] * len(rows)
        reports: dict[int, DedupDone] = {}
        for bucket in range(BUCKETS):
            where = np.flatnonzero(buckets == bucket)[::-1]
            site = TaskSite(
                store=self.store,
                sink_id="s",
                bucket=bucket,
                number=self.number,
                attempt=f"a{self.attempts}",
                environment=self.environment,
            )
            done = run_dedup_task(
                site,
                self.pinned,
                self.cache,
                (high[where], low[where]),
                times[where],
                where,
                settings=self.rule,
                merge_rows_max=self.merge_rows_max,
            )
            for row, keep, late in zip(where, done.judged.keep, done.judged.late, strict=True):
                fates[row] = {
                    (True, False): "kept",
                    (True, True): "late",
                    (False, True): "diverted",
                    (False, False): "duplicate",
                }[bool(keep), bool(late)]
            reports[bucket] = done
        return fates, reports

    def commit(self, reports: dict[int, DedupDone], now_ms: int) -> None:
        times = [r.event_time_max_ms for r in reports.values() if r.event_time_max_ms is not None]
        watermark = next_watermark(
            self.pinned.event_time_watermark_ms,
            max(times, default=None),
            now_ms=now_ms,
            allowance_ms=5,
        )
        runs = {bucket: report.runs for bucket, report in reports.items()}
        self.pinned = decode_pinned(
            encode_pinned(self.pinned.with_runs(runs, event_time_watermark_ms=watermark))
        )
        self.number += 1


ROWS = st.lists(st.tuples(st.integers(0, 7), st.integers(-5, 60)), max_size=12)
STEPS = st.lists(
    st.tuples(ROWS, st.integers(0, 2), st.booleans(), st.integers(0, 60)), min_size=1, max_size=12
)
RULES = st.builds(
    DedupSettings,
    within_ms=st.none() | st.integers(0, 20),
    lateness_ms=st.none() | st.integers(0, 20),
    late=st.sampled_from(LatePolicy),
)


@settings(max_examples=150, deadline=None)
@given(rule=RULES, steps=STEPS, merge_rows_max=st.sampled_from([0, 4, 1000]))
def test_dedup_equals_its_model_through_crashes_replays_expiry_and_merges(
    rule: DedupSettings,
    steps: list[tuple[list[Row], int, bool, int]],
    merge_rows_max: int,
):
    sink, model = Sink(rule, merge_rows_max), Model(rule)
    for rows, crashes, new_worker, now_ms in steps:
        attempts = [sink.attempt(rows)[0] for _ in range(crashes)]
        if new_worker:
            sink.cache = StateCache()
        fates, reports = sink.attempt(rows)
        assert all(before == fates for before in attempts)
        assert fates == list(model.judge(rows))
        sink.commit(reports, now_ms)
        if rows:
            latest = min(max(time for _, time in rows), now_ms + 5)
            model.watermark = latest if model.watermark is None else max(latest, model.watermark)
        assert sink.pinned.event_time_watermark_ms == model.watermark
