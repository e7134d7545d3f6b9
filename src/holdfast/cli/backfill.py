"""`holdfast backfill`: an old range of a topic into files, exactly once, however often it is run.

Owns the options, the progress and the exit code, which is as for `holdfast run`.
"""

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.run import exit_code, quiet_logs
from holdfast.errors import ConfigurationError

if TYPE_CHECKING:
    from holdfast.spark.backfill import Backfill, Standing
    from holdfast.spark.progress import Reporter

EXIT_INTERRUPTED = 130


@click.command()
@click.option("--store", help="The store of a Holdfast; no broker is needed.")
@click.option("--bootstrap", help="HOST:PORT of any Kafka, instead of --store.")
@click.option("--topic", required=True)
@click.option("--from-offset", type=click.IntRange(0), help="The first offset (else the earliest).")
@click.option("--to-offset", type=click.IntRange(0), help="The first offset that is left out.")
@click.option("--from-time", help="2026-11-01, 2026-11-01T12:00:00Z, or ms since 1970.")
@click.option("--to-time", help="The first time that is left out.")
@click.option("--to", required=True, help="A directory, s3://, gs:// or az://.")
@click.option("--sink-id", required=True, help="The name of the ledger of this backfill.")
@click.option(
    "--format",
    "format_",
    default="parquet",
    show_default=True,
    type=click.Choice(["parquet", "jsonl.zst"]),
)
@click.option("--partition-by", multiple=True, help="A column for folders; may be repeated.")
@click.option("--include-headers", is_flag=True, help="With a column of the records' headers.")
@click.option(
    "--slice-records",
    type=click.IntRange(1),
    help="Records for each ledger entry (else 20 million).",
)
@click.option("--master", default="local[*]", show_default=True, help="Spark's master URL.")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark.")
@click.option("--option", "options", multiple=True, metavar="KEY=VALUE", help="As kafka.client.id.")
@click.option("--verbose", is_flag=True, help="With the log lines of Spark and of Holdfast.")
def command(verbose: bool, **given: Any) -> None:
    """Write an old range of a topic to files.

    The range is cut into slices, and each becomes one entry of the ledger of --sink-id. A run that
    was killed leaves nothing half done: the same command goes on after the last slice, and says so
    when all is there. What is produced meanwhile is not part of it.
    """
    quiet_logs(verbose=verbose)
    sys.exit(exit_code(lambda: _backfill(verbose=verbose, **given)))


def _backfill(**given: Any) -> int:
    # These need numpy, pyarrow and pyspark, which `--help` must do without.
    from holdfast.columnar.schema import SCHEMA
    from holdfast.settings_file import located
    from holdfast.spark.backfill import Backfill
    from holdfast.spark.backfill_plan import SLICE_RECORDS, Asked, parse_time_ms
    from holdfast.spark.job import Output
    from holdfast.spark.preflight import check_machine, check_output, check_topics, open_source
    from holdfast.spark.progress import reporter_for
    from holdfast.spark.run_job import job_session

    for name in given["partition_by"]:
        if name not in SCHEMA.names:
            raise ConfigurationError(
                f"--partition-by {name}: there is no such column; there are"
                f" {', '.join(SCHEMA.names)}"
            )
    times = (given["from_time"], given["to_time"])
    from_ms, to_ms = (None if text is None else parse_time_ms(text) for text in times)
    asked = Asked(
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
        format=given["format_"],
        partition_by=given["partition_by"],
    )
    check_machine()
    options = _source_options(given)
    source = open_source(options)
    check_topics(source, options)
    check_output(output.store)
    backfill = Backfill(asked, output, source)
    if backfill.is_done():
        _echo_all_there(backfill, output.store)
        return 0
    reporter = reporter_for(sys.stderr)
    reporter.tell(_beginning(backfill))
    conf = _pairs(given["conf"], "--conf")
    name = f"holdfast backfill {asked.topic}"
    spark = job_session(given["master"], name, conf, verbose=given["verbose"])
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        backfill.run(
            spark,
            watch=_Shown(reporter),
            slice_records=given["slice_records"] or SLICE_RECORDS,
        )
    except KeyboardInterrupt:
        reporter.close()
        share = backfill.standing().share
        click.echo(f"interrupted at {share:.0%}: the same command goes on from there", err=True)
        return EXIT_INTERRUPTED
    finally:
        reporter.close()
        spark.stop()
    standing = backfill.standing()
    click.echo(f"rows        {standing.rows:,} in {standing.files:,} files, in this run")
    _echo_all_there(backfill, output.store)
    return 0


def _source_options(given: dict[str, Any]) -> Any:
    from holdfast.spark.options import parse_options

    options = _pairs(given["options"], "--option")
    foreign = [name for name in options if not name.lower().startswith("kafka.")]
    if foreign:
        raise ConfigurationError(
            f"--option {foreign[0]} would have no effect: it takes settings of the Kafka client"
            " (kafka.*). What is read is chosen by --topic, --from-offset, --to-offset, --from-time"
            " and --to-time"
        )
    if given["store"] is not None:
        options["store"] = given["store"]
    if given["bootstrap"] is not None:
        options["kafka.bootstrap.servers"] = given["bootstrap"]
    if (given["store"] is None) == (given["bootstrap"] is None):
        raise ConfigurationError(
            "say where the records are, with one of --store (the address that `holdfast serve"
            " --store` has) and --bootstrap (any Kafka)"
        )
    return parse_options({**options, "subscribe": given["topic"]}, streaming=False)


def _pairs(given: tuple[str, ...], name: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in given:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise ConfigurationError(f"{name} {text}: write it as KEY=VALUE")
        pairs[key] = value
    return pairs


class _Shown:
    """Says how far it is: on a terminal all the time, elsewhere after each slice."""

    def __init__(self, reporter: "Reporter") -> None:
        self._reporter = reporter
        self._done = -1

    def __call__(self, standing: "Standing", tasks_done: int, tasks: int) -> None:
        text = f"{standing.share:.1%} of {standing.total:,} records, {standing.rows:,} rows written"
        left = standing.eta_s()
        if left is not None:
            text += f", {_shown_seconds(left)} left"
        if standing.done != self._done:
            self._done = standing.done
            self._reporter.tell(text)
        else:
            self._reporter.show(f"{text}; this slice: {tasks_done} of {tasks} tasks")


def _beginning(backfill: "Backfill") -> str:
    standing = backfill.standing()
    if backfill.is_new:
        return f"a new backfill of {standing.total:,} records"
    return f"going on at {standing.share:.1%} of {standing.total:,} records"


def _shown_seconds(seconds: float) -> str:
    if seconds >= 5_400:
        return f"{seconds / 3_600:.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 90 else f"{seconds:.0f} s"


def _echo_all_there(backfill: "Backfill", store: str) -> None:
    total = backfill.standing().total
    head = backfill.head
    entries = 0 if head is None else head.n + 1
    click.echo(f"all is there: {total:,} records of {backfill.topic} in {entries} ledger entries")
    click.echo(f"look        holdfast landed {store}")
