"""`holdfast backfill`: write an old range of a topic to files, each record exactly once.

It can be run again after a kill. Owns the options, the progress and the exit code: those of
`holdfast run`, and 130 after an interrupt.
"""

import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import examples, json_lines_option, master_option, verbose_option
from holdfast.cli.run import echo_hint, exit_code, quiet_logs
from holdfast.cli.suggestions import SuggestingChoice
from holdfast.errors import ConfigurationError
from holdfast.extras import require
from holdfast.json_lines import Emit, json_output
from holdfast.quantities import time_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.spark.ledger.backfill import Backfill, BackfillProgress
    from holdfast.spark.pipelines.progress import Reporter

EXIT_INTERRUPTED = 130
FORMATS = {"parquet": "parquet", "jsonl": "jsonl.zst", "jsonl.zst": "jsonl.zst"}
"""The name in ledgers of each `--format`. A pipeline's [output] format takes the same values."""


@click.command(
    epilog=examples(
        "holdfast backfill --store s3://bucket/prod --topic orders --to s3://lake/orders"
        " --sink-id orders-2026 --from-time 2026-01-01 --to-time 2027-01-01",
        "holdfast backfill --bootstrap kafka:9092 --topic orders --to /var/lake/orders"
        " --sink-id orders --format jsonl --json",
    )
)
@click.option(
    "--store", metavar="URL", help="Read from the store of a Holdfast broker. Needs no broker."
)
@click.option(
    "--bootstrap",
    "--bootstrap-server",
    metavar="HOST:PORT",
    help="Read from any Kafka cluster, instead of --store.",
)
@click.option("--topic", required=True, metavar="NAME", help="The topic to read.")
@click.option(
    "--from-offset",
    type=click.IntRange(0),
    metavar="OFFSET",
    help="Begin at this offset in every partition. Without it: at the earliest.",
)
@click.option(
    "--to-offset",
    type=click.IntRange(0),
    metavar="OFFSET",
    help="End before this offset. Without it: at the current end of the topic.",
)
@click.option(
    "--from-time",
    metavar="TIME",
    help="Begin at a time: 2026-11-01, 2026-11-01T12:00:00Z, or milliseconds since 1970.",
)
@click.option("--to-time", metavar="TIME", help="End before this time.")
@click.option(
    "--to",
    required=True,
    metavar="URL",
    help="Where files are written: a directory, s3://, gs:// or az://.",
)
@click.option(
    "--sink-id",
    required=True,
    metavar="NAME",
    help="The name of this backfill's ledger, which records what is done.",
)
@click.option(
    "--format",
    "format_",
    default="parquet",
    show_default=True,
    type=SuggestingChoice(list(FORMATS)),
    metavar="[parquet|jsonl]",
    help="The format of the files, as in a pipeline.",
)
@click.option(
    "--partition-by",
    multiple=True,
    metavar="COLUMN",
    help="Write into folders COLUMN=value. Can be repeated.",
)
@click.option("--include-headers", is_flag=True, help="Add a column with the records' headers.")
@click.option(
    "--slice-records",
    type=click.IntRange(1),
    metavar="NUMBER",
    help="Commit after this many records. Without it: 20 million.",
)
@master_option("local[*]")
@click.option(
    "--conf",
    multiple=True,
    metavar="KEY=VALUE",
    help="A Spark setting, such as spark.driver.memory=4g. Can be repeated.",
)
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="A Kafka client setting, such as kafka.client.id=backfill. Can be repeated.",
)
@verbose_option
@json_lines_option
def command(verbose: bool, as_json: bool, **given: Any) -> None:
    """Write an old range of a topic to files, on Spark.

    The range is fixed when the backfill begins; records produced later are not part of it. It is
    written in slices, and each slice is committed as a whole. After a kill, run the same command
    again: it continues after the last committed slice. When everything is written, it says so and
    does nothing.

    \b
    Exit codes:
      0  everything is written
      1  something must be corrected
      3  continuing would harm data: someone must look
      4  a store or a broker did not answer: start it again
      130  interrupted: run the same command to continue
    """
    require("holdfast backfill", "spark")
    quiet_logs(verbose=verbose)
    with json_output(enabled=as_json) as emit:
        code = exit_code(lambda: _backfill(emit, verbose=verbose, **given))
    sys.exit(code)


def _backfill(emit: Emit | None, **given: Any) -> int:
    # Imported here, because they need the extra, and `--help` must work without it.
    from holdfast.settings_file import located
    from holdfast.spark.ledger.backfill import Backfill
    from holdfast.spark.ledger.backfill_plan import SLICE_RECORDS, BackfillRequest
    from holdfast.spark.ledger.job import Output
    from holdfast.spark.pipelines.preflight import (
        check_machine,
        check_output,
        check_topics,
        open_source,
    )
    from holdfast.spark.pipelines.progress import reporter_for
    from holdfast.spark.runtime.command_session import job_session

    _check_columns(given["partition_by"])
    times = (given["from_time"], given["to_time"])
    from_ms, to_ms = (None if text is None else time_ms(text) for text in times)
    asked = BackfillRequest(
        topic=given["topic"],
        from_offset=given["from_offset"],
        to_offset=given["to_offset"],
        from_ms=from_ms,
        to_ms=to_ms,
        include_headers=given["include_headers"],
    )
    output = Output(
        store=located(given["to"], Path.cwd()),
        sink_id=given["sink_id"],
        format=_format(given["format_"]),
        partition_by=given["partition_by"],
    )
    check_machine()
    options = _source_options(given)
    source = open_source(options)
    check_topics(source, options)
    check_output(output.store)
    backfill = Backfill(asked, output, source)
    if backfill.is_done():
        _echo_end(backfill, output.store, emit, ended="complete")
        return 0
    reporter = reporter_for(sys.stderr, emit)
    reporter.tell(_beginning(backfill))
    conf = _pairs(given["conf"], "--conf")
    name = f"holdfast backfill {asked.topic}"
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    spark: SparkSession | None = None
    try:
        spark = job_session(
            given["master"], name, conf, tell=reporter.tell, verbose=given["verbose"]
        )
        backfill.run(
            spark,
            watch=_Shown(reporter, emit),
            slice_records=given["slice_records"] or SLICE_RECORDS,
        )
    except KeyboardInterrupt:
        reporter.close()
        _echo_end(backfill, output.store, emit, ended="interrupted")
        return EXIT_INTERRUPTED
    finally:
        reporter.close()
        if spark is not None:
            spark.stop()
    _echo_end(backfill, output.store, emit, ended="complete")
    return 0


def _check_columns(names: Sequence[str]) -> None:
    from holdfast.columnar.schema import SCHEMA

    for name in names:
        if name not in SCHEMA.names:
            raise ConfigurationError(
                f"--partition-by {name}: there is no such column; use one of"
                f" {', '.join(SCHEMA.names)}"
            )


def _format(given: str) -> str:
    if given == "jsonl.zst":
        echo_hint("--format jsonl.zst is now --format jsonl; the old name still works")
    return FORMATS[given]


def _source_options(given: dict[str, Any]) -> Any:
    from holdfast.spark.source.options import parse_options

    options = _pairs(given["options"], "--option")
    foreign = [name for name in options if not name.lower().startswith("kafka.")]
    if foreign:
        raise ConfigurationError(
            f"--option {foreign[0]} would have no effect: --option takes settings of the Kafka"
            " client, which begin with kafka. To choose what is read, use --topic, --from-offset,"
            " --to-offset, --from-time and --to-time"
        )
    if given["store"] is not None:
        options["store"] = given["store"]
    if given["bootstrap"] is not None:
        options["kafka.bootstrap.servers"] = given["bootstrap"]
    if (given["store"] is None) == (given["bootstrap"] is None):
        raise ConfigurationError(
            "use exactly one of --store (the address given to `holdfast serve --store`) and"
            " --bootstrap (a broker of any Kafka cluster)"
        )
    return parse_options({**options, "subscribe": given["topic"]}, streaming=False)


def _pairs(given: tuple[str, ...], name: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in given:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise ConfigurationError(f"{name} {text}: it must be KEY=VALUE")
        pairs[key] = value
    return pairs


class _Shown:
    """The progress of a backfill: updated in place on a terminal, elsewhere after each slice."""

    def __init__(self, reporter: "Reporter", emit: Emit | None) -> None:
        self._reporter = reporter
        self._emit = emit
        self._done = -1

    def __call__(self, standing: "BackfillProgress", tasks_done: int, tasks: int) -> None:
        if self._emit is not None:
            self._emit_slice(self._emit, standing)
            return
        text = f"{standing.share:.1%} of {standing.total:,} records, {standing.rows:,} rows written"
        left = standing.eta_s()
        if left is not None:
            text += f", {_shown_seconds(left)} left"
        if standing.done != self._done:
            self._done = standing.done
            self._reporter.tell(text)
        else:
            self._reporter.show(f"{text}; this slice: {tasks_done} of {tasks} tasks")

    def _emit_slice(self, emit: Emit, standing: "BackfillProgress") -> None:
        if standing.done != self._done:
            self._done = standing.done
            left = standing.eta_s()
            seconds_left = None if left is None else round(left, 1)
            emit("progress", {**_fields(standing), "seconds_left": seconds_left})


def _fields(standing: "BackfillProgress") -> dict[str, Any]:
    return {
        "records_done": standing.done,
        "records_total": standing.total,
        "rows": standing.rows,
        "files": standing.files,
        "seconds": round(standing.seconds, 3),
    }


def _beginning(backfill: "Backfill") -> str:
    standing = backfill.standing()
    if backfill.is_new:
        return f"a new backfill of {standing.total:,} records"
    return f"continuing at {standing.share:.1%} of {standing.total:,} records"


def _shown_seconds(seconds: float) -> str:
    if seconds >= 5_400:
        return f"{seconds / 3_600:.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 90 else f"{seconds:.0f} s"


def _echo_end(backfill: "Backfill", store: str, emit: Emit | None, *, ended: str) -> None:
    """Print what this run wrote, and whether the backfill is complete."""
    standing = backfill.standing()
    entries = 0 if backfill.head is None else backfill.head.n + 1
    if emit is not None:
        what = {"topic": backfill.topic, **_fields(standing), "entries": entries}
        emit("summary", {**what, "ended": ended, "output": store})
        return
    if ended == "interrupted":
        click.echo(
            f"interrupted at {standing.share:.0%}: run the same command again to continue", err=True
        )
        return
    if standing.done > standing.before:
        click.echo(f"rows        {standing.rows:,} in {standing.files:,} files, in this run")
    if standing.unreadable:
        click.echo(f"unreadable  {standing.unreadable:,} records left out, kept in _unreadable/")
    click.echo(
        f"complete: {standing.total:,} records of {backfill.topic} in {entries} ledger entries"
    )
    click.echo(f"look        holdfast landed {shlex.quote(store)}")
