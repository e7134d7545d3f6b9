"""`holdfast run`: a pipeline from a file, until it is told to stop or all is there.

Owns the options, the signals, what a person sees, and the exit code: 0 where all that was asked for
is landed, 1 where something must be corrected, 3 where going on would harm data and a person must
look, 4 where starting it again may help.
"""

import logging
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from holdfast.environment import SystemEnvironment
from holdfast.errors import HoldfastError, ReopenError, RetryError, StopError

EXIT_FIX = 1
EXIT_LOOK = 3
EXIT_AGAIN = 4
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def override_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Of every command that reads a file of settings."""
    return click.option(
        "--option",
        "options",
        multiple=True,
        metavar="TABLE.KEY=VALUE",
        help="Instead of what the file says; may be repeated.",
    )(command)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--once", is_flag=True, help="Take what is there now, and end.")
@click.option("--master", help="Spark's master URL, instead of the file's.")
@override_option
@click.option("--dry-run", is_flag=True, help="Check everything, start nothing.")
@click.option(
    "--reset-checkpoint",
    is_flag=True,
    help="Set Spark's checkpoint aside, and go on by what has landed.",
)
@click.option("--verbose", is_flag=True, help="With the log lines of Spark and of Holdfast.")
def command(file: Path, options: tuple[str, ...], verbose: bool, **flags: Any) -> None:
    """Run the pipeline in FILE, a .toml file or a .py file.

    Its tables are [source] and [output], and as they are wanted [dedup], [aggregate] or [timers],
    [transform], [delta], [iceberg] and [spark]: docs/reference/pipeline.md has every key.

    SIGINT and SIGTERM end it after the micro-batch that runs; a second one ends it at once. It may
    be killed anywhere, and started again: source offsets, state and output become visible together.
    If its checkpoint is deleted, it goes on by what has landed.
    """
    quiet_logs(verbose=verbose)
    sys.exit(exit_code(lambda: _run(file, options, verbose=verbose, **flags)))


def quiet_logs(*, verbose: bool) -> None:
    """Python's log lines; those of the bridge to the JVM repeat what is told anyway."""
    logging.basicConfig(
        level="INFO" if verbose else "WARNING",
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
    )
    if not verbose:
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        logging.getLogger("pyspark").setLevel(logging.ERROR)


def exit_code(work: Callable[[], int]) -> int:
    """Do it; an error of ours is one line, and a code that tells its family."""
    try:
        return work()
    except HoldfastError as error:
        click.echo(f"holdfast: {error}", err=True)
        if isinstance(error, StopError):
            return EXIT_LOOK
        return EXIT_AGAIN if isinstance(error, RetryError | ReopenError) else EXIT_FIX


def stop_on_signals(stop: threading.Event) -> None:
    """The first signal asks for an end; the next one ends the process, and its JVM with it."""

    def ask(number: int, frame: object) -> None:
        stop.set()
        for again in SIGNALS:
            signal.signal(again, signal.SIG_DFL)

    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL if stop.is_set() else ask)


def _run(
    file: Path,
    options: Sequence[str],
    *,
    once: bool,
    master: str | None,
    dry_run: bool,
    reset_checkpoint: bool,
    verbose: bool,
) -> int:
    # These need numpy, pyarrow and pyspark, which `--help` must do without.
    from holdfast.spark.checkpoint_folder import local_folder, spark_folder
    from holdfast.spark.pipeline_file import read_pipeline
    from holdfast.spark.preflight import check_machine, check_pipeline
    from holdfast.spark.progress import reporter_for, summary
    from holdfast.spark.run_job import Run, begin_text, described, start_session, where_to_begin

    pipeline = read_pipeline(file, options, master=master, once=once)
    check_machine()
    ready = check_pipeline(pipeline)
    reporter = reporter_for(sys.stderr)
    folder = local_folder(pipeline.checkpoint)
    if folder is not None and not reset_checkpoint:
        where_to_begin(pipeline, ready, folder)
    if dry_run:
        for name, text in described(pipeline, ready, folder):
            click.echo(f"{name:<12}{text}")
        click.echo("all is well, and nothing was started")
        return 0
    environment = SystemEnvironment()
    stop = threading.Event()
    stop_on_signals(stop)
    spark = start_session(pipeline, verbose=verbose)
    try:
        stop_on_signals(stop)  # Spark has put a handler of its own for SIGINT in their place
        if folder is None:
            folder = spark_folder(spark, pipeline.checkpoint)
        if reset_checkpoint:
            aside = folder.set_aside(f"set-aside-{environment.now_ms()}")
            if aside is not None:
                reporter.tell(f"the checkpoint {folder.location} is now {aside}")
        begin = where_to_begin(pipeline, ready, folder)
        reporter.tell(begin_text(begin, folder))
        run = Run(spark, pipeline, begin=begin, environment=environment)
        try:
            was_stopped = run.watch(stop, reporter)
        finally:
            reporter.close()
    finally:
        spark.stop()
    how = "stopped after a micro-batch" if was_stopped else "all that was there is landed"
    for name, text in [*summary(run.totals), ("ended", how)]:
        click.echo(f"{name:<12}{text}")
    click.echo(f"look        holdfast landed {pipeline.to}")
    return 0
