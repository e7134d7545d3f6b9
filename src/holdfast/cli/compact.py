"""`holdfast compact`: many small committed files of a sink into few.

Owns the options and what is shown before and after. Starts Spark only where there is work for it.
"""

import dataclasses
from typing import Any

import click

from holdfast.cli.tables import echo_json, echo_table, shown_bytes
from holdfast.spark.compact import TARGET_BYTES, TARGET_BYTES_MIN, Compacted, compact, dry_run


@click.command()
@click.argument("url")
@click.option("--sink-id", required=True, help="The sink whose files are compacted.")
@click.option(
    "--target-bytes",
    type=click.IntRange(min=TARGET_BYTES_MIN),
    default=TARGET_BYTES,
    show_default=True,
    help="About how large files become.",
)
@click.option("--master", default="local[*]", show_default=True, help="Where Spark runs.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def command(
    url: str, sink_id: str, target_bytes: int, master: str, is_dry: bool, as_json: bool
) -> None:
    """Merge the small committed files of a sink in the store at URL.

    The rows stay the same, and each counts once at every instant: one ledger entry replaces the old
    files by the new. It may run beside the pipeline, be killed and be started again. The old files
    stay, for queries that read them now, until `holdfast landed URL --sweep` removes them. Runs of
    state that are no longer needed are deleted. Tables (Delta, Iceberg) follow when the pipeline
    runs next.
    """
    if is_dry:
        done = dry_run(url, sink_id, target_bytes=target_bytes)
    else:
        done = _with_spark(url, sink_id, target_bytes, master)
    if as_json:
        echo_json({"dry_run": is_dry, **dataclasses.asdict(done)})
    else:
        _echo(done, sink_id, is_dry=is_dry)


def _with_spark(url: str, sink_id: str, target_bytes: int, master: str) -> Compacted:
    started: list[Any] = []

    def session() -> Any:
        if not started:
            from holdfast.spark.session import session as start

            started.append(start(master, app_name=f"holdfast compact {sink_id}"))
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
        click.echo(f"micro-batches came between {done.lost} times, and it was planned again")
    if done.state_runs_deleted:
        click.echo(f"deleted {done.state_runs_deleted} runs of state that nothing needs any more")
