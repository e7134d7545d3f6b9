"""`holdfast sink`: one member of a consumer group that lands topics, until it is told to stop.

Owns the options, the signals, what a person sees, and the exit code, which is that of
`holdfast run`: 0 where all that was asked for is landed, 1 where something must be corrected, 3
where going on would harm data and a person must look, 4 where starting it again may help.
"""

import asyncio
import contextlib
import ctypes
import importlib.util
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.asking import run_with_cluster
from holdfast.cli.loop import run_loop
from holdfast.cli.run import (
    EXIT_AGAIN,
    EXIT_LOOK,
    SIGNALS,
    exit_code,
    override_option,
    quiet_logs,
)
from holdfast.cli.tables import echo_table
from holdfast.environment import SystemEnvironment
from holdfast.errors import ConfigurationError

if TYPE_CHECKING:
    from holdfast.client.groups import GroupDescription
    from holdfast.sink.preflight import Ready
    from holdfast.sink.settings import SinkSettings
    from holdfast.sink.status import SinkStatus

M_ARENA_MAX = -8
ARENAS = 2

Report = Callable[["SinkStatus"], None]
Work = Callable[["Stop", Report], Awaitable["SinkStatus"]]


@click.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--once", is_flag=True, help="Land what is there now, and end.")
@click.option("--dry-run", is_flag=True, help="Check everything, start nothing.")
@override_option
@click.option("--members", type=click.IntRange(1), help="So many members, as tasks of a Spark job.")
@click.option("--master", help="Spark's master URL; without it a local Spark, for --members.")
@click.option("--verbose", is_flag=True, help="With log lines.")
def command(config: Path, options: tuple[str, ...], verbose: bool, **flags: Any) -> None:
    """Land the topics that CONFIG names, a .toml file, as a member of its consumer group.

    Its tables are [source] and [output], and as they are wanted [batch], [limits] and [http]:
    docs/reference/sink.md has every key. Start it as often as there are partitions, on as many
    machines: each record is in exactly one object, however members come, go and are killed.

    SIGINT and SIGTERM end it after what is open has landed and is committed; a second one ends it
    at once, and the next member reads those records again.
    """
    quiet_logs(verbose=verbose)
    sys.exit(exit_code(lambda: _run(config, options, verbose=verbose, **flags)))


def _run(
    config: Path,
    options: Sequence[str],
    *,
    once: bool,
    dry_run: bool,
    members: int | None,
    master: str | None,
    verbose: bool,
) -> int:
    from holdfast.sink.config_file import read_sink

    hold_memory_together()
    settings = read_sink(config, options)
    _check_packages()
    if dry_run:
        return _dry_run(settings)
    work = _as_member(settings, once=once)
    if members is not None or master is not None:
        work = _on_spark(settings, members or 1, master, once=once, verbose=verbose)
    return run_loop(run_watched(settings, work))


def hold_memory_together() -> None:
    """Few arenas of malloc, whatever the number of threads: what one frees another may use.

    Only glibc has them; elsewhere there is nothing to set.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)


def _check_packages() -> None:
    """What a broker does without, and `--help` must; imported where it is used, after this."""
    for name in ("numba", "pyarrow"):
        if importlib.util.find_spec(name) is None:
            raise ConfigurationError(f'{name} is not installed: pip install "holdfast[spark]"')


class Stop:
    """Told by the first signal; for a loop, and for threads."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.for_threads = threading.Event()

    def ask(self) -> None:
        """From now on a signal ends the process."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        self.event.set()
        self.for_threads.set()


def _as_member(settings: "SinkSettings", *, once: bool) -> Work:
    """This process is the member."""

    def work(stop: Stop, report: Report) -> Awaitable["SinkStatus"]:
        from holdfast.sink.run import run_sink

        return run_sink(settings, stop=stop.event, once=once, report=report)

    return work


def _on_spark(
    settings: "SinkSettings", members: int, master: str | None, *, once: bool, verbose: bool
) -> Work:
    """Members are tasks of a job. Its driver waits in a thread, so that signals stay ours."""

    def work(stop: Stop, report: Report) -> Awaitable["SinkStatus"]:
        from holdfast.spark.sink_members import run_members

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
            verbose=verbose,
        )

    return work


async def run_watched(settings: "SinkSettings", work: Work) -> int:
    """Do the work, with its progress on the terminal and its health where [http] says."""
    from holdfast.cli.sink_progress import SinkProgress, summary
    from holdfast.sink.http import HealthServer

    memory_bytes = settings.limits.memory_bytes
    progress = SinkProgress(sys.stderr, memory_bytes=memory_bytes, environment=SystemEnvironment())
    health = (
        HealthServer(settings.http, memory_bytes=memory_bytes)
        if settings.http is not None
        else None
    )
    stop = Stop()

    def ask() -> None:
        stop.ask()
        progress.tell("stopping: what is open is landed and committed first; again to end at once")

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
    how = "it was told to stop" if stop.event.is_set() else "all that was there is landed"
    for name, text in [*summary(status, progress.seconds), ("ended", how)]:
        click.echo(f"{name:<12}{text}")
    click.echo(f"look        holdfast landed {settings.output.store}")
    return EXIT_AGAIN if status.problems else 0


def _dry_run(settings: "SinkSettings") -> int:
    from holdfast.sink.preflight import check_sink

    ready = run_with_cluster(settings.bootstrap, lambda cluster: check_sink(cluster, settings))
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
    for problem in ready.problems:
        click.echo(f"holdfast: {problem}", err=True)
    if ready.problems:
        return EXIT_LOOK
    click.echo("all is well, and nothing was started")
    return 0


def _described(settings: "SinkSettings", ready: "Ready") -> list[tuple[str, str]]:
    output, batch = settings.output, settings.batch
    kind = f"{output.format} ({output.layout})" if output.format == "jsonl" else output.format
    topics = ", ".join(ready.topics) or f"none matches {settings.member.pattern!r} now"
    return [
        ("brokers", f"{settings.bootstrap}, {ready.brokers} in the cluster"),
        ("group", _group(settings.member.group_id, ready.group)),
        ("topics", topics),
        ("output", f"{output.store}, it can be written"),
        ("objects", f"{output.template.text}, {kind}, {output.compression}"),
        (
            "batches",
            f"{batch.bytes_max:,} bytes, {batch.age_ms / 1000:g} s or {batch.records_max:,}"
            " records, whichever comes first",
        ),
    ]


def _group(group_id: str, group: "GroupDescription | None") -> str:
    if group is None:
        return f"{group_id}, a new one"
    return f"{group_id}, {group.state}, {len(group.members)} members, {group.kind} protocol"
