"""`holdfast landed`: show what has landed at an address, and check that it is complete.

Owns the options, the tables and the exit code. It is 0 only if every chain covers each offset
exactly once and every file that a ledger names is there. It is 2 if something is missing,
duplicated, foreign or damaged, which is named by its key. It is also 2 if nothing has landed at
all: a wrong address must not look like success.
"""

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import examples, json_option, verify_option
from holdfast.cli.tables import echo_json, echo_table, shown_bytes
from holdfast.environment import Environment, SystemEnvironment
from holdfast.extras import require
from holdfast.store.address import open_store
from holdfast.store.read_only import open_read_only

if TYPE_CHECKING:
    from holdfast.inspect.output_survey import OutputSurvey, SinkReport
    from holdfast.landing.sweep import Swept

EXIT_NOT_WHOLE = 2
SHOWN_MAX = 50


@click.command(
    epilog=examples(
        "holdfast landed /var/lake/orders",
        "holdfast landed s3://lake/orders --verify --json",
    )
)
@click.argument("url")
@click.option("--topic", metavar="NAME", help="Show the chains of this topic only.")
@click.option("--files", is_flag=True, help="List each object and file that counts.")
@verify_option
@click.option(
    "--sweep",
    "with_sweep",
    is_flag=True,
    help="Delete orphans and replaced files that can never count again.",
)
@json_option
def command(
    url: str, topic: str | None, files: bool, verify: bool, with_sweep: bool, as_json: bool
) -> None:
    """Show what a sink or a pipeline has written to URL, and check that it is complete.

    A chain is complete when its objects cover each offset of a partition exactly once. A ledger is
    complete when every file that it names exists with the right size, and with --verify with the
    right checksum.

    Files that no ledger names are orphans, left by runs that were killed. Readers never see them.
    --sweep deletes those that no run can commit any more.

    Exit code 2: something is missing, duplicated, foreign or damaged, or nothing has landed here.
    """
    require("holdfast landed", "sink")
    if topic is not None and with_sweep:
        raise click.UsageError(
            "--sweep works on the whole output, not on one topic: remove --topic"
        )
    sys.exit(asyncio.run(_landed(url, topic, files, verify, with_sweep, as_json)))


async def _landed(
    url: str, topic: str | None, files: bool, verify: bool, with_sweep: bool, as_json: bool
) -> int:
    from holdfast.inspect.output_survey import survey

    environment = SystemEnvironment()
    store = open_read_only(url, environment=environment)
    try:
        report = await survey(store, environment=environment, topic=topic, verify=verify)
    finally:
        await store.close()
    swept = await _sweep(url, environment, report) if with_sweep else {}
    if as_json:
        echo_json(_as_json(report, swept))
    else:
        _echo(report, swept, topic=topic, files=files, verified=verify)
    return 0 if report.is_whole and (report.chains or report.sinks) else EXIT_NOT_WHOLE


async def _sweep(url: str, environment: Environment, report: "OutputSurvey") -> "dict[str, Swept]":
    from holdfast.landing.sweep import sweep

    if not report.is_whole:
        click.echo("nothing was swept: first repair the problems below", err=True)
        return {}
    store = open_store(url, environment=environment)
    try:
        return {
            sink.sink_id: await sweep(store, sink.sink_id, environment=environment)
            for sink in report.sinks
        }
    finally:
        await store.close()


def _as_json(report: "OutputSurvey", swept: "dict[str, Swept]") -> dict[str, Any]:
    return {
        "store": report.store,
        "whole": report.is_whole,
        "chains": report.chains,
        "sinks": report.sinks,
        "problems": report.problems,
        "quarantined": report.quarantined,
        "others": report.others,
        "swept": {sink_id: result.deleted for sink_id, result in swept.items()},
    }


def _echo(
    report: "OutputSurvey",
    swept: "dict[str, Swept]",
    *,
    topic: str | None,
    files: bool,
    verified: bool,
) -> None:
    click.echo(f"store    {report.store}\n")
    chains = [row for row in report.chains if not row.is_dead]
    if chains:
        echo_table(
            "CHAINS",
            ["topic", "partition", "objects", "first..last", "records", "bytes", "format"],
            [
                (
                    row.topic,
                    row.partition,
                    row.objects,
                    f"{row.first_offset}..{row.next_offset - 1}" if row.objects else "-",
                    row.records,
                    shown_bytes(row.bytes),
                    row.format,
                )
                for row in chains
            ],
        )
        click.echo()
    _echo_dead_letters(report)
    _echo_quarantined(report)
    if report.sinks:
        echo_table(
            "LEDGERS",
            ["sink", "entries", "files", "rows", "late", "bytes", "orphans", "replaced"],
            [
                (
                    row.sink_id,
                    row.entries,
                    len(row.files),
                    row.rows,
                    row.late_rows,
                    shown_bytes(row.bytes),
                    len(row.orphans),
                    len(row.replaced),
                )
                for row in report.sinks
            ],
        )
        click.echo()
    if files:
        _echo_files(report)
    for sink in report.sinks:
        _echo_orphans(sink, swept.get(sink.sink_id))
    if report.others:
        click.echo(f"others   {len(report.others)} objects not written by Holdfast, not counted")
    for problem in report.problems:
        click.echo(f"PROBLEM: {problem}", err=True)
    _echo_verdict(report, topic, verified)


def _echo_dead_letters(report: "OutputSurvey") -> None:
    rows = [
        (row.topic, row.partition, count, reason)
        for row in report.chains
        for reason, count in row.reasons.items()
    ]
    if rows:
        echo_table("DEAD LETTERS", ["topic", "partition", "records", "reason"], rows[:SHOWN_MAX])
        if len(rows) > SHOWN_MAX:
            click.echo(f"and {len(rows) - SHOWN_MAX} more (see --json)")
        click.echo()


def _echo_quarantined(report: "OutputSurvey") -> None:
    rows = [
        (row.topic, row.partition, f"{row.first_offset}..{row.last_offset}", row.reason, row.key)
        for row in report.quarantined
    ]
    if rows:
        names = ["topic", "partition", "offsets", "reason", "kept in"]
        echo_table("UNREADABLE BATCHES", names, rows[:SHOWN_MAX])
        if len(rows) > SHOWN_MAX:
            click.echo(f"and {len(rows) - SHOWN_MAX} more (see --json)")
        click.echo()


def _echo_files(report: "OutputSurvey") -> None:
    for chain in report.chains:
        for key in chain.keys:
            click.echo(key)
    for sink in report.sinks:
        for file in sink.files:
            click.echo(file.path)
    click.echo()


def _echo_orphans(sink: "SinkReport", swept: "Swept | None") -> None:
    rows = sink.orphans if swept is None else swept.kept
    if swept is not None:
        size = shown_bytes(sum(row.size for row in swept.deleted))
        click.echo(f"swept    {sink.sink_id}: {len(swept.deleted)} files, {size}")
    replaced = {row.key for row in sink.replaced}
    for name, named in (
        ("orphan", [row for row in rows if row.key not in replaced]),
        ("replaced", [row for row in rows if row.key in replaced]),
    ):
        for row in named[:SHOWN_MAX]:
            click.echo(f"{name:<9}{row.key} ({shown_bytes(row.size)})")
        if len(named) > SHOWN_MAX:
            click.echo(f"{name:<9}and {len(named) - SHOWN_MAX} more (see --json)")


def _echo_verdict(report: "OutputSurvey", topic: str | None, verified: bool) -> None:
    if not report.chains and not report.sinks:
        text = f"nothing has landed at {report.store}: check the address"
        if topic is not None:
            text = f"there is no chain of topic {topic!r} at {report.store}: without --topic, all"
            text += " chains and pipelines there are shown"
        click.echo(text, err=True)
        return
    objects = sum(row.objects for row in report.chains) + sum(len(s.files) for s in report.sinks)
    how = "every byte checked" if verified else "facts and sizes checked"
    if report.is_whole:
        click.echo(f"whole: {objects} objects, {how}")
    else:
        click.echo(f"not whole: {len(report.problems)} problems in {objects} objects, {how}")
