"""`python -m simulation.run`: runs many seeds of the simulation and reports on them.

Owns the report, and how seeds are spread over processes. For a seed that fails it prints the one
command that replays it. Exit codes: 0 nothing found, 1 a violation, 2 nothing was proved.
"""

import contextlib
import dataclasses
import gc
import importlib.util
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import click

from holdfast.environment import SystemEnvironment
from holdfast.errors import ConfigurationError
from holdfast.verify.history import MarkerKind
from simulation.broker_process import BrokerProcess
from simulation.clients.coordination import Mode, Workload
from simulation.seed import ProcessType, simulate

PLANTED_FILE = Path("tests/simulation/planted.py")
SEEDS_AT_ONCE = 20
HUNG_AFTER_SECONDS = 20.0
"""The processor time after which a seed counts as hung; a seed takes a fraction of a second."""
SHOWN_VIOLATIONS_MAX = 5


class Choice(NamedTuple):
    """The choices that hold for all seeds; each choice that is None follows from the seed."""

    workload: Workload | None = None
    mode: Mode | None = None
    uses_disks: bool | None = None

    def options(self) -> str:
        """Return the choices as command-line options."""
        disks = {None: "", True: " --disks", False: " --no-disks"}[self.uses_disks]
        workload = f" --workload {self.workload.value}" if self.workload else ""
        return workload + (f" --mode {self.mode.value}" if self.mode else "") + disks


FREE = Choice()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SeedSummary:
    """The part of a seed's outcome that the report needs."""

    seed: int
    workload: str
    mode: str
    violations: tuple[str, ...]
    kinds: frozenset[str]
    void: str | None
    liveness: tuple[str, ...]
    faults: Counter[str]
    calls: int
    acked: int
    hand_offs: int
    frames: int
    """The number of frames that were durable on a disk."""
    kills: int


@dataclasses.dataclass(slots=True)
class SeedTotals:
    """The sums over all seeds."""

    seeds: int = 0
    calls: int = 0
    acked: int = 0
    hand_offs: int = 0
    frames: int = 0
    with_disks: int = 0
    kills: int = 0
    workloads: Counter[str] = dataclasses.field(default_factory=Counter[str])
    void: int = 0
    unfinished: int = 0
    failed: list[int] = dataclasses.field(default_factory=list[int])
    faults: Counter[str] = dataclasses.field(default_factory=Counter[str])
    kinds: Counter[str] = dataclasses.field(default_factory=Counter[str])

    def add(self, summary: SeedSummary) -> None:
        self.seeds += 1
        self.workloads[f"{summary.workload} {summary.mode}"] += 1
        self.calls += summary.calls
        self.acked += summary.acked
        self.hand_offs += summary.hand_offs
        self.frames += summary.frames
        self.with_disks += summary.frames > 0
        self.kills += summary.kills
        self.void += summary.void is not None
        self.unfinished += bool(summary.liveness)
        self.faults.update(summary.faults)
        self.kinds.update(summary.kinds)
        if summary.violations:
            self.failed.append(summary.seed)

    def verdict(self) -> str:
        """Return the result with its bound: no failure in N seeds means a rate below 3/N, at 95
        %."""
        proving = self.seeds - self.void
        if self.failed:
            return f"{len(self.failed)} of {self.seeds} seeds FAILED: {dict(self.kinds)}"
        if not proving:
            return f"{self.seeds} seeds, all void: nothing was proved"
        return f"0 failures in {proving} seeds: < {3 / proving:.2g} of all seeds at 95 %"


def load_planted(name: str) -> ProcessType:
    """Load a broker process that has a bug in it, from the tests."""
    spec = importlib.util.spec_from_file_location("planted", PLANTED_FILE)
    if spec is None or spec.loader is None or not PLANTED_FILE.exists():
        raise ConfigurationError(f"{PLANTED_FILE} is not here: run this from the repository's root")
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    planted: dict[str, ProcessType] = {**module.PLANTED, **module.HARMLESS}
    if name not in planted:
        raise ConfigurationError(f"no planted bug {name!r}; there are {', '.join(sorted(planted))}")
    return planted[name]


class Hung(KeyboardInterrupt):
    """A step that never returned to the loop. An interrupt, so that no handler swallows it."""


@contextlib.contextmanager
def hang_detector(processor_seconds: float = HUNG_AFTER_SECONDS) -> Generator[None]:
    """Raise Hung inside code that spins. Works only in the main thread."""

    def interrupt(*_: object) -> None:
        raise Hung

    before = signal.signal(signal.SIGVTALRM, interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, processor_seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def run_seed(seed: int, process_type: ProcessType, choice: Choice = FREE) -> SeedSummary:
    """Run one seed and reduce its outcome to what the report needs."""
    try:
        with hang_detector():
            outcome = simulate(seed, process_type=process_type, **choice._asdict())
    except Hung as hung:
        frames = traceback.extract_tb(hung.__traceback__)[-4:]
        where = " < ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in reversed(frames))
        return SeedSummary(
            seed=seed,
            workload="hung",
            mode="hung",
            violations=(f"hang: a step did not end, in {where}",),
            kinds=frozenset(["hang"]),
            void=None,
            liveness=(),
            faults=Counter(),
            calls=0,
            acked=0,
            hand_offs=0,
            frames=0,
            kills=0,
        )
    history = outcome.history
    return SeedSummary(
        seed=seed,
        workload=outcome.workload.value,
        mode=outcome.mode.value,
        violations=tuple(str(violation) for violation in outcome.violations),
        kinds=frozenset(violation.kind.value for violation in outcome.violations),
        void=outcome.void,
        liveness=tuple(outcome.liveness),
        faults=outcome.faults,
        calls=len(history.calls),
        acked=outcome.acked,
        hand_offs=outcome.hand_offs,
        frames=len(history.frames),
        kills=sum(marker.kind is MarkerKind.KILL for marker in history.markers),
    )


def run_seeds(seeds: Iterable[int], planted: str | None, choice: Choice) -> list[SeedSummary]:
    """Run some seeds in this process."""
    process_type: ProcessType = load_planted(planted) if planted else BrokerProcess
    gc.disable()
    found: list[SeedSummary] = []
    for seed in seeds:
        found.append(run_seed(seed, process_type, choice))
    gc.enable()
    gc.collect()
    return found


def run_all(
    first: int,
    count: int,
    jobs: int,
    planted: str | None,
    choice: Choice,
) -> Iterator[SeedSummary]:
    """Run all seeds in `jobs` processes and yield their summaries in order."""
    chunks = [
        range(start, min(start + SEEDS_AT_ONCE, first + count))
        for start in range(first, first + count, SEEDS_AT_ONCE)
    ]
    if jobs == 1:
        for chunk in chunks:
            yield from run_seeds(chunk, planted, choice)
        return
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
    try:
        all_alike = [planted] * len(chunks), [choice] * len(chunks)
        for summaries in pool.map(run_seeds, chunks, *all_alike):
            yield from summaries
    finally:
        pool.shutdown(cancel_futures=True)  # the caller may stop before the last seed


def replay(
    seed: int,
    process_type: ProcessType,
    choice: Choice,
    *,
    shows_history: bool,
) -> int:
    """Run one seed and print its outcome; return the exit code."""
    outcome = simulate(seed, process_type=process_type, **choice._asdict())
    if shows_history:
        for sequence, line in outcome.history.events():
            click.echo(f"{sequence:6d} {line}")
    click.echo(
        f"seed {seed}, {outcome.workload.value}, {outcome.mode.value}: {outcome.steps} steps, "
        f"{outcome.virtual_seconds:.1f} virtual seconds"
    )
    click.echo(f"history {outcome.history.digest()}")
    for text in (*outcome.liveness, *([f"void: {outcome.void}"] if outcome.void else [])):
        click.echo(text)
    for violation in outcome.violations:
        click.echo(f"VIOLATION {violation}")
    return 1 if outcome.violations else 0


def replay_command(seed: int, planted: str | None, choice: Choice) -> str:
    return (
        f"python -m simulation.run --seed {seed}"
        + choice.options()
        + (f" --planted {planted}" if planted else "")
    )


@click.command()
@click.option("--seeds", default=200, type=click.IntRange(1), help="How many seeds.")
@click.option("--first", default=0, type=click.IntRange(0), help="The first seed.")
@click.option("--jobs", default=2, type=click.IntRange(1), help="How many processes.")
@click.option(
    "--minutes",
    type=click.FloatRange(0, min_open=True),
    help="Begin no more seeds after so long, and say how many were played.",
)
@click.option("--seed", type=click.IntRange(0), help="Play one seed again, with its history.")
@click.option("--quiet", is_flag=True, help="With --seed: leave the history out.")
@click.option(
    "--workload",
    type=click.Choice([workload.value for workload in Workload]),
    help="One kind for all seeds; else it follows from the seed.",
)
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in Mode]),
    help="Brokers that share the lanes, or that know nothing of each other; else as the seed says.",
)
@click.option(
    "--disks/--no-disks",
    "uses_disks",
    default=None,
    help="Machines with disks, and topics that are acknowledged from them; else as the seed says.",
)
@click.option("--planted", help="A bug of tests/simulation/planted.py to run with.")
def command(
    seeds: int,
    first: int,
    jobs: int,
    minutes: float | None,
    seed: int | None,
    quiet: bool,
    workload: str | None,
    mode: str | None,
    uses_disks: bool | None,
    planted: str | None,
) -> None:
    """Run the simulation of the whole broker, and check every history."""
    choice = Choice(
        Workload(workload) if workload else None, Mode(mode) if mode else None, uses_disks
    )
    if seed is not None:
        process_type: ProcessType = load_planted(planted) if planted else BrokerProcess
        sys.exit(replay(seed, process_type, choice, shows_history=not quiet))
    clock = SystemEnvironment()
    started = clock.monotonic()
    deadline = started + minutes * 60 if minutes is not None else float("inf")
    totals = SeedTotals()
    for summary in run_all(first, seeds, jobs, planted, choice):
        totals.add(summary)
        if summary.violations and len(totals.failed) <= SHOWN_VIOLATIONS_MAX:
            again = replay_command(summary.seed, planted, choice)
            click.echo(f"seed {summary.seed} FAILED; {again}")
            for violation in summary.violations[:SHOWN_VIOLATIONS_MAX]:
                click.echo(f"  {violation}")
        if summary.liveness:
            command = replay_command(summary.seed, planted, choice)
            click.echo(f"seed {summary.seed} did not finish: {summary.liveness[0]}; {command}")
        if totals.seeds % 200 == 0:
            seconds = clock.monotonic() - started
            click.echo(f"{totals.seeds} seeds, {totals.seeds / seconds:.1f} a second", err=True)
        is_chunk_over = totals.seeds % SEEDS_AT_ONCE == 0
        if is_chunk_over and totals.seeds < seeds and clock.monotonic() > deadline:
            click.echo(f"{minutes:g} minutes are over: {totals.seeds} of {seeds} seeds were played")
            break
    _report(totals, clock.monotonic() - started)
    proved = totals.seeds > totals.void
    sys.exit(1 if totals.failed else 0 if proved else 2)


def _report(totals: SeedTotals, seconds: float) -> None:
    click.echo(
        f"{totals.seeds} seeds in {seconds:.1f} s: {totals.calls} operations, {totals.acked} acked "
        f"batches, {totals.hand_offs} hand-offs, {totals.kills} kills, {totals.void} void runs"
    )
    click.echo(f"disks: {totals.frames} frames durable, in {totals.with_disks} seeds")
    click.echo("workloads: " + ", ".join(f"{k} {n}" for k, n in sorted(totals.workloads.items())))
    click.echo("faults: " + ", ".join(f"{k} {n}" for k, n in sorted(totals.faults.items())))
    click.echo(f"liveness, apart from safety: {totals.unfinished} seeds did not finish their work")
    if totals.failed:
        click.echo(f"failed seeds: {', '.join(map(str, totals.failed[:50]))}")
    click.echo(totals.verdict())


if __name__ == "__main__":
    command()
