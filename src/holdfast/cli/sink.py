"""`holdfast sink`: run one member of a consumer group that lands topics, until a signal stops it.

Owns the options, the signals, the output for a person, and the exit code, which is that of
`holdfast run`: 0 if all that was asked for has landed, 1 if something must be corrected, 3 if
continuing would harm data and a person must look, 4 if starting it again may help.
"""

import asyncio
import contextlib
import ctypes
import shlex
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.asking import run_with_cluster
from holdfast.cli.options import (
    dry_run_option,
    examples,
    json_lines_option,
    master_option,
    override_option,
    verbose_option,
)
from holdfast.cli.run import (
    EXIT_AGAIN,
    EXIT_LOOK,
    SIGNALS,
    echo_dry_run,
    echo_hint,
    exit_code,
    quiet_logs,
)
from holdfast.cli.server.loop import run_loop
from holdfast.cli.tables import echo_table
from holdfast.environment import SystemEnvironment
from holdfast.extras import require
from holdfast.json_lines import Emit, json_output

if TYPE_CHECKING:
    from holdfast.client.groups import GroupDescription
    from holdfast.sink.preflight import Beginning, SinkReady
    from holdfast.sink.settings import SinkSettings
    from holdfast.sink.status import SinkStatus

M_ARENA_MAX = -8
ARENAS = 2

Report = Callable[["SinkStatus"], None]
Work = Callable[["Stop", Report], Awaitable["SinkStatus"]]


@click.command(
    epilog=examples(
        "holdfast sink sink.toml --dry-run",
        "holdfast sink sink.toml",
        "holdfast sink sink.toml --once --json",
        "holdfast sink sink.toml --members 4 --master spark://host:7077",
    )
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--once", is_flag=True, help="Read what is in the topics now, and end.")
@dry_run_option
@override_option
@click.option(
    "--members",
    type=click.IntRange(1),
    metavar="NUMBER",
    help="Run this many members of the group as tasks of a Spark job.",
)
@master_option(None, otherwise=" For --members; without it a local Spark is used.")
@verbose_option
@json_lines_option
def command(
    file: Path, options: tuple[str, ...], verbose: bool, as_json: bool, **flags: Any
) -> None:
    """Write the topics that FILE names to object storage, as a member of a consumer group.

    FILE is a .toml file with the tables [source] and [output], and optionally [batch], [limits],
    [http] and [spark]. docs/reference/sink.md lists every key. Start the command once for each
    member, on any number of machines. Each record ends up in exactly one object, even when members
    join, leave or are killed.

    Runs until Ctrl-C (SIGINT) or SIGTERM, which end it after the records that it holds are written
    and committed. A second signal ends it at once; another member reads those records again.

    \b
    Exit codes:
      0  everything has landed, or a signal ended the sink
      1  something must be corrected
      3  continuing would harm data: someone must look
      4  a store or a broker did not answer: start it again
    """
    require("holdfast sink", "sink")
    if flags["members"] is not None or flags["master"] is not None:
        require("holdfast sink --members", "spark")
    quiet_logs(verbose=verbose)
    with json_output(enabled=as_json) as emit:
        code = exit_code(lambda: _run(file, options, emit=emit, verbose=verbose, **flags))
    sys.exit(code)


def _run(
    file: Path,
    options: Sequence[str],
    *,
    emit: Emit | None,
    once: bool,
    dry_run: bool,
    members: int | None,
    master: str | None,
    verbose: bool,
) -> int:
    from holdfast.sink.config_file import read_sink

    hold_memory_together()
    settings = read_sink(file, options, hint=echo_hint)
    if dry_run:
        return _dry_run(settings, emit)
    work = _as_member(settings, once=once)
    if members is not None or master is not None:
        work = _on_spark(settings, members or 1, master, once=once, verbose=verbose)
    return run_loop(run_watched(settings, work, emit))


def hold_memory_together() -> None:
    """Limit malloc to few arenas, so that one thread can use what another has freed.

    Only glibc has arenas; elsewhere this does nothing.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)


class Stop:
    """A request to stop, made by the first signal: one event for the loop and one for threads."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.for_threads = threading.Event()

    def ask(self) -> None:
        """Request the stop. From now on a signal ends the process."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        self.event.set()
        self.for_threads.set()


def _as_member(settings: "SinkSettings", *, once: bool) -> Work:
    """Return the work of one member in this process."""

    def work(stop: Stop, report: Report) -> Awaitable["SinkStatus"]:
        from holdfast.sink.run import run_sink

        return run_sink(settings, stop=stop.event, once=once, report=report)

    return work


def _on_spark(
    settings: "SinkSettings", members: int, master: str | None, *, once: bool, verbose: bool
) -> Work:
    """Return the work of members as tasks of a Spark job.

    The driver waits in a thread, so that the main thread can handle signals.
    """

    def work(stop: Stop, report: Report) -> Awaitable["SinkStatus"]:
        from holdfast.spark.sink.members import run_members

        loop = asyncio.get_running_loop()

        def hand_over(status: "SinkStatus") -> None:
            loop.call_soon_threadsafe(report, status)

        return asyncio.to_thread(
            run_members,
            settings,
            members=members,
            master=master,
            stop=stop.for_threads,
            once=once,
            report=hand_over,
            tell=partial(click.echo, err=True),
            verbose=verbose,
        )

    return work


async def run_watched(settings: "SinkSettings", work: Work, emit: Emit | None = None) -> int:
    """Do the work; show its progress, and its health if [http] is set. Return the exit code."""
    from holdfast.cli.sink_progress import SinkProgress
    from holdfast.sink.http import HealthServer

    memory_bytes = settings.limits.memory_bytes
    progress = SinkProgress(
        sys.stderr, memory_bytes=memory_bytes, environment=SystemEnvironment(), emit=emit
    )
    health = (
        HealthServer(settings.http, memory_bytes=memory_bytes)
        if settings.http is not None
        else None
    )
    stop = Stop()

    def ask() -> None:
        stop.ask()
        progress.tell(
            "stopping: open batches are written and committed first; signal again to end at once"
        )

    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, ask)

    def report(status: "SinkStatus") -> None:
        progress.report(status)
        if health is not None:
            health.report(status)

    try:
        if health is not None:
            progress.tell(f"metrics and health on http://{await health.start()}")
        status = await work(stop, report)
    finally:
        progress.close()
        if health is not None:
            await health.stop()
    _echo_end(status, progress.seconds, settings, was_stopped=stop.event.is_set(), emit=emit)
    return EXIT_AGAIN if status.problems else 0


def _echo_end(
    status: "SinkStatus",
    seconds: float,
    settings: "SinkSettings",
    *,
    was_stopped: bool,
    emit: Emit | None,
) -> None:
    from holdfast.cli.sink_progress import summary, summary_fields

    to = settings.output.store
    if emit is not None:
        ended = "stopped" if was_stopped else "complete"
        emit("summary", {**summary_fields(status, seconds), "ended": ended, "output": to})
        return
    how = "stopped by a signal" if was_stopped else "everything that was there has landed"
    for name, text in [*summary(status, seconds), ("ended", how)]:
        click.echo(f"{name:<12}{text}")
    click.echo(f"look        holdfast landed {shlex.quote(to)}")


def _dry_run(settings: "SinkSettings", emit: Emit | None) -> int:
    from holdfast.sink.preflight import check_sink

    ready = run_with_cluster(settings.bootstrap, lambda cluster: check_sink(cluster, settings))
    if emit is not None:
        rows = [_beginning_fields(row) for row in ready.beginnings]
        lines = _described(settings, ready)
        echo_dry_run(lines, emit, partitions=rows, problems=list(ready.problems))
    else:
        _echo_beginnings(settings, ready)
    for problem in ready.problems:
        click.echo(f"holdfast: {problem}", err=True)
    return EXIT_LOOK if ready.problems else 0


def _beginning_fields(row: "Beginning") -> dict[str, Any]:
    return {
        "topic": row.where.topic,
        "partition": row.where.partition,
        "begins": row.offset,
        "by": row.by,
        "log_start": row.log_start,
        "log_end": row.log_end,
        "lag": row.lag,
    }


def _echo_beginnings(settings: "SinkSettings", ready: "SinkReady") -> None:
    for name, text in _described(settings, ready):
        click.echo(f"{name:<12}{text}")
    echo_table(
        "",
        ["topic", "partition", "begins", "by", "log", "lag"],
        [
            (
                row.where.topic,
                row.where.partition,
                row.offset,
                row.by,
                f"{row.log_start}..{row.log_end}",
                row.lag,
            )
            for row in ready.beginnings
        ],
    )
    if not ready.problems:
        click.echo("all checks passed; nothing was started")


def _described(settings: "SinkSettings", ready: "SinkReady") -> list[tuple[str, str]]:
    output, batch = settings.output, settings.batch
    kind = f"{output.format} ({output.layout})" if output.format == "jsonl" else output.format
    topics = ", ".join(ready.topics) or f"no topic matches {settings.member.pattern!r} yet"
    return [
        ("brokers", f"{settings.bootstrap}, {ready.brokers} in the cluster"),
        ("group", _group(settings.member.group_id, ready.group)),
        ("topics", topics),
        ("output", f"{output.store}, writable"),
        ("objects", f"{output.template.text}, {kind}, {output.compression}"),
        (
            "batches",
            f"{batch.bytes_max:,} bytes, {batch.age_ms / 1000:g} s or {batch.records_max:,}"
            " records, whichever comes first",
        ),
    ]


def _group(group_id: str, group: "GroupDescription | None") -> str:
    if group is None:
        return f"{group_id}, a new group"
    return f"{group_id}, {group.state}, {len(group.members)} members, {group.kind} protocol"
