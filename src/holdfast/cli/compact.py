"""`holdfast compact`: merge many small committed files of a pipeline into few.

Owns the options and the summary. Starts Spark only if there is something to merge.
"""

import dataclasses
from functools import partial
from typing import Any

import click

from holdfast.cli.options import dry_run_option, examples, json_option, master_option
from holdfast.cli.tables import echo_json, echo_table, shown_bytes
from holdfast.extras import require
from holdfast.spark.ledger.compact_plan import TARGET_BYTES, TARGET_BYTES_MIN, Compacted


@click.command(
    epilog=examples(
        "holdfast compact s3://lake/orders --sink-id orders --dry-run",
        "holdfast compact s3://lake/orders --sink-id orders --target-bytes 268435456",
    )
)
@click.argument("url")
@click.option(
    "--sink-id",
    required=True,
    metavar="NAME",
    help="The sink_id of the pipeline or backfill that wrote the files.",
)
@click.option(
    "--target-bytes",
    type=click.IntRange(min=TARGET_BYTES_MIN),
    default=TARGET_BYTES,
    show_default=True,
    metavar="BYTES",
    help="The size of the new files, roughly.",
)
@master_option("local[*]")
@dry_run_option
@json_option
def command(
    url: str, sink_id: str, target_bytes: int, master: str, dry_run: bool, as_json: bool
) -> None:
    """Merge the small files that a pipeline or a backfill has written to URL.

    The rows stay the same, and readers see each row exactly once at any moment: one ledger entry
    replaces the old files by the new ones. It can run beside the pipeline, and can be killed and
    started again.

    The old files stay for queries that still read them, until `holdfast landed URL --sweep` deletes
    them. Delta and Iceberg tables follow when the pipeline runs next.
    """
    require("holdfast compact", "sink" if dry_run else "spark")
    if dry_run:
        from holdfast.spark.ledger.compact import dry_run as plan_only

        done = plan_only(url, sink_id, target_bytes=target_bytes)
    else:
        done = _with_spark(url, sink_id, target_bytes, master)
    if as_json:
        echo_json({"dry_run": dry_run, **dataclasses.asdict(done)})
    else:
        _echo(done, sink_id, is_dry=dry_run)


def _with_spark(url: str, sink_id: str, target_bytes: int, master: str) -> Compacted:
    from holdfast.spark.ledger.compact import compact
    from holdfast.spark.runtime.command_session import job_session

    started: list[Any] = []

    def session() -> Any:
        if not started:
            name = f"holdfast compact {sink_id}"
            started.append(job_session(master, name, {}, tell=partial(click.echo, err=True)))
        return started[0]

    try:
        return compact(session, url, sink_id, target_bytes=target_bytes)
    finally:
        for spark in started:
            spark.stop()


def _echo(done: Compacted, sink_id: str, *, is_dry: bool) -> None:
    echo_table(
        f"SINK {sink_id}",
        ["", "files", "bytes"],
        [
            ("before", done.files_before, shown_bytes(done.bytes_before)),
            ("would be" if is_dry else "after", done.files_after, shown_bytes(done.bytes_after)),
        ],
    )
    if is_dry:
        click.echo(f"\nwould merge {done.merged} files; nothing was changed")
        return
    click.echo(f"\nmerged {done.merged} files in {len(done.entries)} ledger entries")
    if done.lost:
        click.echo(f"planned again {done.lost} times, because the pipeline committed meanwhile")
    if done.state_runs_deleted:
        click.echo(f"deleted {done.state_runs_deleted} state files that are no longer needed")
