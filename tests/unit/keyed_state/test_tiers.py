"""Runs stay few, little of them is dead, and no micro-batch merges more than its bound."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.keyed_state.pinned import TIME_MIN, RunInfo
from holdfast.keyed_state.tiers import plan_hash_merge, plan_keyed_merge


def info(rows: int, *, low: int = 0, median: int = 0, high: int = 0, name: str = "r") -> RunInfo:
    return RunInfo(
        name=name,
        rows=rows,
        bytes=rows * 24,
        crc=0,
        time_min_ms=low,
        time_median_ms=median,
        time_max_ms=high,
    )


@settings(deadline=None)
@given(st.lists(st.integers(0, 500), max_size=300))
def test_the_number_of_runs_is_logarithmic_whatever_the_sizes_of_the_micro_batches(
    sizes: list[int],
):
    runs: tuple[RunInfo, ...] = ()
    for new_rows in sizes:
        plan = plan_hash_merge(runs, new_rows=new_rows, horizon_ms=TIME_MIN)
        rows = new_rows + sum(run.rows for run in plan.merge)
        runs = (*plan.stay, *([info(rows)] if rows else []))
        for before, after in itertools.pairwise(runs):
            assert before.rows >= 2 * after.rows
    assert sum(run.rows for run in runs) == sum(sizes)
    assert len(runs) <= max(1, sum(sizes)).bit_length()


@settings(deadline=None)
@given(st.lists(st.integers(1, 500), max_size=200), st.integers(1, 2000))
def test_a_micro_batch_never_merges_more_rows_than_its_bound(sizes: list[int], bound: int):
    runs: tuple[RunInfo, ...] = ()
    total = 0
    for new_rows in sizes:
        plan = plan_hash_merge(runs, new_rows=new_rows, horizon_ms=TIME_MIN, merge_rows_max=bound)
        merged = sum(run.rows for run in plan.merge)
        assert merged <= bound
        runs = (*plan.stay, info(new_rows + merged))
        total += new_rows
    assert len(runs) <= 2 * total / bound + bound.bit_length() + 2


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 40), min_size=1, max_size=30), st.integers(0, 8)),
        max_size=60,
    )
)
def test_bytes_stay_within_twice_the_live_ones_but_for_one_rewrite_each_micro_batch(
    steps: list[tuple[list[int], int]],
):
    held: list[tuple[RunInfo, list[int]]] = []
    now = 0
    for offsets, pause in steps:
        now += pause
        horizon = now - 10
        before = held
        new = [now + offset for offset in offsets]
        infos = [run for run, _ in held]
        plan = plan_hash_merge(infos, new_rows=len(new), horizon_ms=horizon)
        assert not plan.forget or all(run.time_max_ms < horizon for run in plan.forget)
        content = {id(run): times for run, times in before}
        for run in plan.merge:
            new += [time for time in content[id(run)] if time >= horizon]
        held = [(run, content[id(run)]) for run in plan.stay]
        half_dead = [run for run in plan.stay if run.time_median_ms < horizon]
        was_half_dead = [run for run in infos if run.time_median_ms < horizon <= run.time_max_ms]
        assert len(half_dead) <= max(0, len(was_half_dead) - 1)
        for run, times in held:
            if run not in half_dead:
                assert 2 * sum(time >= horizon for time in times) >= len(times)
        ranked = sorted(new)
        fresh = info(len(new), low=ranked[0], median=ranked[len(new) // 2], high=ranked[-1])
        held.append((fresh, new))


def test_a_run_that_has_expired_as_a_whole_is_forgotten_without_being_read():
    old, young = info(10, high=99), info(1, high=100, median=100)
    plan = plan_hash_merge([old, young], new_rows=0, horizon_ms=100)
    assert plan.forget == (old,)
    assert plan.stay == (young,)
    assert not plan.merge


def test_a_micro_batch_with_nothing_new_leaves_live_runs_alone():
    runs = [info(3), info(3)]
    assert plan_hash_merge(runs, new_rows=0, horizon_ms=TIME_MIN).stay == tuple(runs)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 60)), max_size=100))
def test_keyed_rows_stay_within_twice_the_live_keys(steps: list[tuple[int, int]]):
    runs: tuple[RunInfo, ...] = ()
    for new_rows, live_keys in steps:
        plan = plan_keyed_merge(runs, new_rows=new_rows, live_keys=live_keys)
        assert plan.stay + plan.merge == runs
        if plan.stay:
            assert plan.stay[-1].rows >= 2 * (new_rows + sum(run.rows for run in plan.merge))
            rows = new_rows + sum(run.rows for run in plan.merge)
        else:
            rows = min(live_keys, new_rows + sum(run.rows for run in plan.merge))
        runs = (*plan.stay, *([info(rows)] if rows else []))
        assert sum(run.rows for run in runs) <= 2 * live_keys + 64
