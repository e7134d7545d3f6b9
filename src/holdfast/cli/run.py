"""`holdfast run`: run a pipeline from a file, until a signal stops it or everything has landed.

Owns the options, the signals, the output for a person, and the exit code: 0 if all that was asked
for has landed, 1 if something must be corrected, 3 if continuing would harm data and a person must
look, 4 if starting it again may help.
"""

import logging
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import (
    dry_run_option,
    examples,
    json_lines_option,
    master_option,
    override_option,
    verbose_option,
)
from holdfast.environment import SystemEnvironment
from holdfast.errors import HoldfastError, ReopenError, RetryError, StopError
from holdfast.extras import MissingExtra, require
from holdfast.json_lines import Emit, json_output

if TYPE_CHECKING:
    from holdfast.spark.pipelines.file import PipelineFile
    from holdfast.spark.pipelines.progress import RunTotals

EXIT_FIX = 1
EXIT_LOOK = 3
EXIT_AGAIN = 4
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@click.command(
    epilog=examples(
        "holdfast run pipeline.toml --dry-run",
        "holdfast run pipeline.toml --once",
        "holdfast run pipeline.py --master spark://host:7077 --json",
        "holdfast run pipeline.toml --option output.trigger='1 minute'",
    )
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--once", is_flag=True, help="Read what is in the topics now, and end.")
@master_option(None, otherwise=" Replaces the file's.")
@override_option
@dry_run_option
@click.option(
    "--reset-checkpoint",
    is_flag=True,
    help="Rename Spark's checkpoint, and continue after the last row that was written.",
)
@verbose_option
@json_lines_option
def command(
    file: Path, options: tuple[str, ...], verbose: bool, as_json: bool, **flags: Any
) -> None:
    """Run the pipeline in FILE on Spark.

    FILE is a .toml file with the tables [source] and [output], and optionally one of [dedup],
    [aggregate] and [timers], and [transform], [delta], [iceberg] and [spark]; or a .py file with
    the same tables in OPTIONS and a function `pipeline`. docs/reference/pipeline.md lists every
    key.

    Runs until Ctrl-C (SIGINT) or SIGTERM, which end it after the current micro-batch. A second
    signal ends it at once. It can be killed at any time and started again: each record counts
    exactly once, even if the checkpoint is deleted.

    \b
    Exit codes:
      0  everything has landed, or a signal ended the run
      1  something must be corrected
      3  continuing would harm data: someone must look
      4  a store or a broker did not answer: start it again
    """
    require("holdfast run", "spark")
    quiet_logs(verbose=verbose)
    with json_output(enabled=as_json) as emit:
        code = exit_code(lambda: _run(file, options, emit=emit, verbose=verbose, **flags))
    sys.exit(code)


def quiet_logs(*, verbose: bool) -> None:
    """Set up logging. Unless `verbose`, hide lines of the bridge to the JVM: they repeat what is
    reported in other ways."""
    logging.basicConfig(
        level="INFO" if verbose else "WARNING",
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
    )
    if not verbose:
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        logging.getLogger("pyspark").setLevel(logging.ERROR)


def echo_hint(text: str) -> None:
    """Print a hint: something works, but there is a better way to write it."""
    click.echo(f"hint: {text}", err=True)


def exit_code(work: Callable[[], int]) -> int:
    """Do the work and return its exit code. A HoldfastError prints one line; its family decides the
    code."""
    try:
        return work()
    except MissingExtra:
        raise
    except HoldfastError as error:
        click.echo(f"holdfast: {error}", err=True)
        if isinstance(error, StopError):
            return EXIT_LOOK
        return EXIT_AGAIN if isinstance(error, RetryError | ReopenError) else EXIT_FIX


def stop_on_signals(stop: threading.Event) -> None:
    """Set `stop` at the first signal. The next one ends the process, and its JVM with it."""

    def ask(number: int, frame: object) -> None:
        stop.set()
        for again in SIGNALS:
            signal.signal(again, signal.SIG_DFL)

    for number in SIGNALS:
        signal.signal(number, ask)


def _run(
    file: Path,
    options: Sequence[str],
    *,
    emit: Emit | None,
    once: bool,
    master: str | None,
    dry_run: bool,
    reset_checkpoint: bool,
    verbose: bool,
) -> int:
    # Imported here, because they need the extra, and `--help` must work without it.
    from holdfast.spark.ledger.checkpoint_folder import local_folder, spark_folder
    from holdfast.spark.pipelines.preflight import check_machine, check_master, check_pipeline
    from holdfast.spark.pipelines.progress import RunTotals, reporter_for
    from holdfast.spark.pipelines.run import (
        RunningPipeline,
        begin_text,
        described,
        start_session,
        where_to_begin,
    )

    reporter = reporter_for(sys.stderr, emit)
    pipeline, spark = _read(file, options, master, once, tell=reporter.tell, verbose=verbose)
    check_machine()
    check_master(pipeline.master)
    ready = check_pipeline(pipeline)
    folder = local_folder(pipeline.checkpoint)
    if folder is not None and not reset_checkpoint:
        where_to_begin(pipeline, ready, folder)
    if dry_run:
        if pipeline.transform is not None:
            _analyse(pipeline, spark, tell=reporter.tell, verbose=verbose)
        echo_dry_run(described(pipeline, ready, folder), emit)
        return 0
    environment = SystemEnvironment()
    stop = threading.Event()
    stop_on_signals(stop)
    try:
        spark = spark or start_session(pipeline, tell=reporter.tell, verbose=verbose, stop=stop)
    except KeyboardInterrupt:
        reporter.close()
        _echo_end(RunTotals(), pipeline.to, was_stopped=True, emit=emit)
        return 0
    try:
        if folder is None:
            folder = spark_folder(spark, pipeline.checkpoint)
        if reset_checkpoint:
            aside = folder.set_aside(f"set-aside-{environment.now_ms()}")
            if aside is not None:
                reporter.tell(f"the checkpoint {folder.location} was renamed to {aside}")
        begin = where_to_begin(pipeline, ready, folder)
        reporter.tell(begin_text(begin, folder))
        source = ready.source
        run = RunningPipeline(spark, pipeline, begin=begin, source=source, environment=environment)
        try:
            was_stopped = run.watch(stop, reporter)
        finally:
            reporter.close()
    finally:
        spark.stop()
    _echo_end(run.totals, pipeline.to, was_stopped=was_stopped, emit=emit)
    return 0


def echo_dry_run(lines: Sequence[tuple[str, str]], emit: Emit | None, **more: Any) -> None:
    """Print what would be done, as pairs of a name and a text."""
    if emit is not None:
        emit("dry_run", {**dict(lines), **more})
        return
    for name, text in lines:
        click.echo(f"{name:<12}{text}")
    click.echo("all checks passed; nothing was started")


def _echo_end(totals: "RunTotals", to: str, *, was_stopped: bool, emit: Emit | None) -> None:
    from holdfast.spark.pipelines.progress import summary, summary_fields

    if emit is not None:
        ended = "stopped" if was_stopped else "complete"
        emit("summary", {**summary_fields(totals), "ended": ended, "output": to})
        return
    how = "everything that was there has landed"
    if was_stopped:
        how = f"stopped {'after a' if totals.batches else 'before the first'} micro-batch"
    for name, text in [*summary(totals), ("ended", how)]:
        click.echo(f"{name:<12}{text}")
    click.echo(f"look        holdfast landed {shlex.quote(to)}")


def _read(
    file: Path,
    options: Sequence[str],
    master: str | None,
    once: bool,
    *,
    tell: Callable[[str], None],
    verbose: bool,
) -> tuple["PipelineFile", Any]:
    """Return the pipeline, and a Spark session if its Python file needs one to be loaded."""
    from holdfast.spark.pipelines.file import read_pipeline, spark_of
    from holdfast.spark.pipelines.preflight import check_machine
    from holdfast.spark.pipelines.transform import NeedsSession
    from holdfast.spark.runtime.command_session import job_session

    try:
        return read_pipeline(file, options, master=master, once=once, hint=echo_hint), None
    except NeedsSession as needs:
        check_machine()
        where, conf = spark_of(file, options, needs, master=master)
    spark = job_session(where, f"holdfast run {file.name}", conf, tell=tell, verbose=verbose)
    return read_pipeline(file, options, master=master, once=once), spark


def _analyse(
    pipeline: "PipelineFile", spark: Any, *, tell: Callable[[str], None], verbose: bool
) -> None:
    """Check the transform's plan with a local Spark. This finds errors such as a wrong column."""
    from holdfast.spark.pipelines.run import check_transform
    from holdfast.spark.runtime.command_session import job_session

    name = f"holdfast run {pipeline.origin.name} --dry-run"
    spark = spark or job_session("local[1]", name, pipeline.conf, tell=tell, verbose=verbose)
    try:
        check_transform(spark, pipeline)
    finally:
        spark.stop()
