"""Aggregates and timers on pinned runs against plain models: crashes, replays, expiry, merges."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.environment import SeededEnvironment, VirtualClock
from holdfast.keyed_state.aggregates import Aggregate, AggregateSettings, Function
from holdfast.keyed_state.cache import StateCache
from holdfast.keyed_state.dedup import LatePolicy
from holdfast.keyed_state.keyed_rows import KeyedBucket
from holdfast.keyed_state.keyed_task import run_aggregate_task, run_timer_task
from holdfast.keyed_state.pinned import (
    Operator,
    bucket_of,
    decode_pinned,
    encode_pinned,
    next_watermark,
    nothing_pinned,
)
from holdfast.keyed_state.task_site import TaskSite
from holdfast.keyed_state.timers import TimerSettings, may_be_due
from holdfast.store.memory import MemoryStore

BUCKETS = 2
SCHEMA = pa.schema({"id": pa.string(), "n": pa.int64(), "text": pa.string()})
Event = tuple[int, int, int | None]
"""A key, an event time, a number or null."""


class Sink:
    """A ledger in a variable, a store, and workers that come and go."""

    def __init__(self, operator: Operator) -> None:
        self.environment = SeededEnvironment(seed=1, clock=VirtualClock())
        self.store = MemoryStore(environment=self.environment)
        self.pinned = nothing_pinned(operator, buckets=BUCKETS, hash_seed=1)
        self.cache: StateCache[KeyedBucket] = StateCache()
        self.attempts = 0
        self.number = 0

    def site(self, bucket: int) -> TaskSite:
        self.attempts += 1
        return TaskSite(
            store=self.store,
            sink_id="s",
            bucket=bucket,
            number=self.number,
            attempt=f"a{self.attempts}",
            environment=self.environment,
        )

    def commit(self, runs: dict[int, Any], watermark: int | None) -> None:
        self.pinned = decode_pinned(
            encode_pinned(self.pinned.with_runs(runs, event_time_watermark_ms=watermark))
        )
        self.number += 1


def split(events: list[Event]):
    """For each bucket the hashes, event times, columns and order, rows turned around."""
    keys = np.array([key for key, _, _ in events], np.uint64)
    high, low = (keys >> np.uint64(2)) << np.uint64(61), keys * np.uint64(0x9E3779B97F4A7C15)
    times = np.array([time for _, time, _ in events], np.int64)
    table = pa.table(
        {
            "id": [f"k{key}" for key, _, _ in events],
            "n": [n for _, _, n in events],
            "text": [None if n is None else f"{n:03d}" for _, _, n in events],
        },
        schema=SCHEMA,
    )
    buckets = bucket_of(low, BUCKETS)
    for bucket in range(BUCKETS):
        where = np.flatnonzero(buckets == bucket)[::-1]
        yield bucket, (high[where], low[where]), times[where], table.take(where), where


AGGREGATES = (
    Aggregate(name="records", function=Function.COUNT),
    Aggregate(name="numbers", function=Function.COUNT, column="n"),
    Aggregate(name="total", function=Function.SUM, column="n"),
    Aggregate(name="least", function=Function.MIN, column="text"),
    Aggregate(name="most", function=Function.MAX, column="n"),
    Aggregate(name="first", function=Function.FIRST, column="text"),
    Aggregate(name="last", function=Function.LAST, column="n"),
)


@dataclass
class AggregateModel:
    """All records of each living key, in plain lists."""

    rule: AggregateSettings
    records: dict[int, list[Event]] = field(default_factory=dict[int, list[Event]])
    watermark: int | None = None

    def update(self, events: list[Event]) -> tuple[dict[str, Any], int, int]:
        horizon = -(10**9)
        if self.rule.idle_ms is not None and self.watermark is not None:
            horizon = self.watermark - self.rule.idle_ms
        self.forget(horizon)
        late = [event for event in events if event[1] < horizon]
        diverts = self.rule.late is LatePolicy.DIVERT
        touched: set[int] = set()
        for event in events:
            if not (diverts and event in late):
                self.records.setdefault(event[0], []).append(event)
                touched.add(event[0])
        rows = {f"k{key}": self.row(key) for key in touched}
        self.forget(horizon)
        return rows, len(late), len(late) if diverts else 0

    def forget(self, horizon: int) -> None:
        self.records = {
            key: events
            for key, events in self.records.items()
            if max(time for _, time, _ in events) >= horizon
        }

    def row(self, key: int) -> dict[str, Any]:
        ns = [n for _, _, n in self.records[key]]
        numbers = [n for n in ns if n is not None]
        return {
            "id": f"k{key}",
            "records": len(ns),
            "numbers": len(numbers),
            "total": sum(numbers) if numbers else None,
            "least": min((f"{n:03d}" for n in numbers), default=None),
            "most": max(numbers, default=None),
            "first": None if ns[0] is None else f"{ns[0]:03d}",
            "last": ns[-1],
        }


EVENTS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 60), st.none() | st.integers(0, 99)), max_size=12
)
STEPS = st.lists(
    st.tuples(EVENTS, st.integers(0, 1), st.booleans(), st.integers(0, 40)), min_size=1, max_size=14
)
RULES = st.builds(
    AggregateSettings,
    key_columns=st.just(("id",)),
    aggregates=st.just(AGGREGATES),
    idle_ms=st.none() | st.integers(0, 20),
    late=st.sampled_from(LatePolicy),
)


@settings(max_examples=80, deadline=None)
@given(rule=RULES, steps=STEPS)
def test_aggregates_equal_their_model_through_crashes_replays_expiry_and_merges(
    rule: AggregateSettings, steps: list[tuple[list[Event], int, bool, int]]
):
    sink, model = Sink(rule.operator(SCHEMA)), AggregateModel(rule)
    for events, crashes, new_worker, now_ms in steps:
        if new_worker:
            sink.cache = StateCache()
        expected, late, diverted = model.update(events)
        for _ in range(crashes + 1):
            rows, counts, runs = {}, [0, 0], {}
            for bucket, hashes, times, table, order in split(events):
                done = run_aggregate_task(
                    sink.site(bucket),
                    sink.pinned,
                    sink.cache,
                    hashes,
                    times,
                    table,
                    order,
                    settings=rule,
                )
                output = done.aggregated.output
                if output is not None:
                    rows |= {row["id"]: row for row in output.columns.to_pylist()}
                counts[0] += int(done.aggregated.late.sum())
                counts[1] += int(done.aggregated.diverted.sum())
                runs[bucket] = done.runs
            assert rows == expected
            assert counts == [late, diverted]
        latest = max((time for _, time, _ in events), default=None)
        watermark = next_watermark(
            sink.pinned.event_time_watermark_ms, latest, now_ms=now_ms, allowance_ms=20
        )
        sink.commit(runs, watermark)
        model.watermark = watermark


TIMER = TimerSettings(key_columns=("id",), after_ms=10)
TICKS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 30), max_size=20),
        st.integers(0, 8),
        st.integers(0, 1),
        st.booleans(),
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=80, deadline=None)
@given(ticks=TICKS)
def test_timers_equal_their_model_and_fire_once_through_crashes_and_replays(
    ticks: list[tuple[list[int], int, int, bool]],
):
    sink = Sink(TIMER.operator())
    deadlines: dict[str, int] = {}
    now_ms = 1_000
    for keys, pause, crashes, new_worker in ticks:
        now_ms += pause
        if new_worker:
            sink.cache = StateCache()
        touched = {f"k{key}" for key in keys}
        due = {key: at for key, at in deadlines.items() if at <= now_ms and key not in touched}
        for _ in range(crashes + 1):
            fired: dict[str, int] = {}
            runs: dict[int, Any] = {}
            for bucket, hashes, _, table, order in split([(key, 0, 0) for key in keys]):
                if not hashes[0].size and not may_be_due(sink.pinned, bucket, now_ms=now_ms):
                    continue
                done = run_timer_task(
                    sink.site(bucket),
                    sink.pinned,
                    sink.cache,
                    hashes,
                    table,
                    order,
                    settings=TIMER,
                    now_ms=now_ms,
                )
                if done.fired.due is not None:
                    ids = done.fired.due.columns.column("id").to_pylist()
                    assert not fired.keys() & set(ids)
                    fired |= dict(zip(ids, done.fired.due.time.tolist(), strict=True))
                runs[bucket] = done.runs
            assert fired == due
        sink.commit(runs, None)
        deadlines = {key: at for key, at in deadlines.items() if key not in due}
        deadlines |= dict.fromkeys(touched, now_ms + 10)
        rows = sum(run.rows for infos in sink.pinned.runs for run in infos)
        assert rows <= 2 * len(deadlines) + 2 * 64
