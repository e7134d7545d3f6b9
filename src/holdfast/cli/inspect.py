"""`holdfast inspect`: show what is in a store, and check it for damage, without asking a broker.

Owns the options, the tables and the exit code: 2 if an object is damaged. Its key is then printed.
"""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import click

from holdfast.cli.options import examples, json_option, verify_option
from holdfast.cli.tables import echo_json, echo_table, shown_age, shown_bytes
from holdfast.environment import Environment, SystemEnvironment
from holdfast.errors import NewerFormat, StopError
from holdfast.inspect.findings import Findings, Weight
from holdfast.inspect.spools import SpoolRow, survey_spools
from holdfast.inspect.survey import Survey, SurveyedTopic, SurveyParts, survey
from holdfast.inspect.verification import Verification
from holdfast.store.read_only import ReadOnlyStore, open_read_only

EXIT_HARMED = 2
PROGRESS_EVERY_S = 5.0
FINDINGS_SHOWN_MAX = 50


@click.command(
    epilog=examples(
        "holdfast inspect --store /var/lib/holdfast",
        "holdfast inspect --store s3://bucket/prod --verify --json",
    )
)
@click.option(
    "--store",
    "store_url",
    required=True,
    metavar="URL",
    help="The store of a broker: a directory, s3://, gs:// or az://.",
)
@click.option("--lane", type=click.IntRange(0), metavar="NUMBER", help="Show this lane only.")
@click.option(
    "--entries",
    default=0,
    type=click.IntRange(0),
    metavar="NUMBER",
    help="Show the newest objects of each lane, up to this number.",
)
@click.option(
    "--claims",
    default=5,
    type=click.IntRange(0),
    show_default=True,
    metavar="NUMBER",
    help="Show the newest changes of owner of each lane, up to this number.",
)
@verify_option
@click.option(
    "--spool",
    type=click.Path(exists=True, file_okay=False),
    help="Also show what the spool directory of a broker holds.",
)
@json_option
def command(
    store_url: str,
    lane: int | None,
    entries: int,
    claims: int,
    verify: bool,
    spool: str | None,
    as_json: bool,
) -> None:
    """Show what is in the store of a broker.

    Needs no broker, works beside running ones, and changes nothing.

    With --verify, checks the checksums of every object, the hash chain of each lane, the CRC of
    every record batch, and that the offsets of each partition have no gap. Record batches that a
    producer sent in a form that cannot be read are listed too; they do not count as damage.

    Exit code 2: an object is damaged. Its key is printed.
    """
    wanted = SurveyParts(lane=lane, claims=claims, entries=entries)
    sys.exit(asyncio.run(_inspect(store_url, wanted, verify=verify, spool=spool, as_json=as_json)))


async def _inspect(
    store_url: str, wanted: SurveyParts, *, verify: bool, spool: str | None, as_json: bool
) -> int:
    environment = SystemEnvironment()
    store = open_read_only(store_url, environment=environment)
    try:
        findings = Findings(progress_lines(environment) if verify else None)
        seen = await _survey(store, environment, wanted, findings)
        spools = await survey_spools(spool, store, environment) if spool is not None else None
        if verify:
            await Verification(store, environment, findings, lane=wanted.lane).run()
    finally:
        await store.close()
    if as_json:
        echo_json({**_as_json(seen, findings, verify), "spools": spools})
    else:
        if seen is not None:
            _echo_survey(seen, environment.now_ms(), wanted)
        if spools is not None:
            _echo_spools(spools, seen)
        _echo_findings(findings, verify)
    return EXIT_HARMED if findings.of(Weight.HARM) else 0


async def _survey(
    store: ReadOnlyStore, environment: Environment, wanted: SurveyParts, findings: Findings
) -> Survey | None:
    """Survey the store, and report damage as findings. None if the control lane is damaged."""
    try:
        seen = await survey(store, environment, wanted)
    except NewerFormat:
        raise
    except StopError as error:
        findings.harm(*_split(str(error)))
        return None
    for problem in seen.problems:
        findings.harm(*_split(problem))
    return seen


def _split(message: str) -> tuple[str, str]:
    key, _, problem = message.partition(": ")
    return key, problem


def progress_lines(environment: Environment) -> Callable[[Findings], None]:
    """Return a function that prints the progress on stderr every PROGRESS_EVERY_S."""
    said_at = environment.monotonic()

    def say(findings: Findings) -> None:
        nonlocal said_at
        now = environment.monotonic()
        if now - said_at >= PROGRESS_EVERY_S:
            said_at = now
            share = 100 * findings.bytes / max(1, findings.bytes_expected)
            click.echo(
                f"verified {shown_bytes(findings.bytes)} in {findings.objects} objects"
                f" ({min(share, 100):.0f}%), {len(findings.of(Weight.HARM))} problems",
                err=True,
            )

    return say


def _as_json(seen: Survey | None, findings: Findings, verify: bool) -> dict[str, Any]:
    return {
        "survey": seen,
        "verified": {
            "objects": findings.objects,
            "bytes": findings.bytes,
            "skipped": findings.skipped,
        }
        if verify
        else None,
        "harmed": findings.of(Weight.HARM),
        "unreadable": findings.of(Weight.UNREADABLE),
        "left_over": findings.of(Weight.LEFT_OVER),
    }


def _echo_survey(seen: Survey, now_ms: int, wanted: SurveyParts) -> None:
    click.echo(f"store    {seen.store}")
    click.echo(
        f"cluster  {seen.cluster_id}, {seen.data_lanes} data lanes, format {seen.format_version}"
    )
    for broker_id, address in sorted(seen.brokers.items()):
        click.echo(f"broker   {broker_id} at {address}")
    click.echo()
    echo_table(
        "LANES",
        ["lane", "floor", "snapshot", "next", "epoch", "state", "objects", "bytes", "written"],
        [
            (
                row.lane,
                row.floor,
                row.snapshot_number if row.snapshot_number >= 0 else None,
                row.next_number,
                row.leader_epoch,
                "DAMAGED" if row.problem else "released" if row.released else "claimed",
                row.objects,
                shown_bytes(row.bytes),
                shown_age(row.last_written_ms, now_ms),
            )
            for row in seen.lanes
        ],
    )
    if wanted.claims:
        _echo_claims(seen, now_ms)
    if wanted.entries:
        _echo_entries(seen, now_ms)
    _echo_topics(seen)
    _echo_disks(seen, now_ms)


def _echo_claims(seen: Survey, now_ms: int) -> None:
    click.echo()
    echo_table(
        "HAND-OFFS (newest last)",
        ["lane", "number", "epoch", "broker", "address", "from the previous owner", "claimed"],
        [
            (
                row.lane,
                claim.number,
                claim.leader_epoch,
                claim.broker_id,
                claim.address,
                claim.how,
                shown_age(claim.claimed_ms, now_ms),
            )
            for row in seen.lanes
            for claim in row.claims
        ],
    )


def _echo_entries(seen: Survey, now_ms: int) -> None:
    click.echo()
    echo_table(
        "LANE OBJECTS (newest last)",
        ["lane", "number", "kind", "facts", "payload", "written"],
        [
            (
                row.lane,
                entry.number,
                entry.kind,
                entry.facts,
                shown_bytes(entry.payload_bytes),
                shown_age(entry.written_ms, now_ms),
            )
            for row in seen.lanes
            for entry in row.entries
        ],
    )


def _echo_topics(seen: Survey) -> None:
    click.echo()
    echo_table(
        "TOPICS",
        ["topic", "id", "partitions", "configs"],
        [
            (
                _shown_name(topic),
                topic.topic_id,
                len(topic.partitions),
                " ".join(f"{key}={value}" for key, value in sorted(topic.configs.items())),
            )
            for topic in seen.topics
        ],
    )
    click.echo()
    echo_table(
        "PARTITIONS",
        [
            *("topic", "partition", "lane", "log start", "high watermark", "last stable"),
            *("segments", "bytes"),
        ],
        [
            (
                _shown_name(topic),
                row.partition,
                row.lane,
                row.log_start_offset,
                row.high_watermark,
                row.last_stable_offset,
                row.segments,
                shown_bytes(row.bytes),
            )
            for topic in seen.topics
            for row in topic.partitions
        ],
    )


def _echo_disks(seen: Survey, now_ms: int) -> None:
    """Print offsets that are, or may have been, only on a broker's disk. Print nothing if none."""
    rows = [(_shown_name(topic), row) for topic in seen.topics for row in topic.partitions]
    missing = [(name, row, hole) for name, row in rows for hole in row.missing]
    if missing:
        click.echo()
        echo_table(
            "MISSING RECORDS (the log continued without the disk that may hold them)",
            ["topic", "partition", "offsets", "disk of claim", "given up"],
            [
                (
                    name,
                    row.partition,
                    f"{hole.base_offset}..{hole.last_offset}",
                    hole.claim,
                    shown_age(hole.missing_ms, now_ms),
                )
                for name, row, hole in missing
            ],
        )
    awaiting = [(name, row) for name, row in rows if row.awaits_claim is not None]
    if awaiting:
        click.echo()
        echo_table(
            "NEWER RECORDS MAY BE ON A DISK (the spool of the broker that made this claim)",
            ["topic", "partition", "from offset", "disk of claim"],
            [(name, row.partition, row.high_watermark, row.awaits_claim) for name, row in awaiting],
        )


def _echo_spools(rows: list[SpoolRow], seen: Survey | None) -> None:
    names = {topic.topic_id: topic.name for topic in seen.topics} if seen is not None else {}
    click.echo()
    echo_table(
        "SPOOLS",
        ["lane", "claim", "state", "files", "frames", "batches", "bytes", "torn"],
        [
            (
                *(row.lane, row.claim, row.state, row.files, row.frames, row.record_batches),
                *(shown_bytes(row.bytes), shown_bytes(row.torn_bytes)),
            )
            for row in rows
        ],
    )
    click.echo()
    echo_table(
        "ON THIS DISK, NOT IN THE STORE",
        ["topic", "partition", "offsets", "lane", "claim"],
        [
            (
                names.get(part.topic_id, part.topic_id),
                part.partition,
                f"{part.first_offset}..{part.last_offset}",
                row.lane,
                row.claim,
            )
            for row in rows
            for part in row.not_in_store
        ],
    )
    for row in rows:
        for problem in row.problems:
            click.echo(f"ignored: {problem}")


def _shown_name(topic: SurveyedTopic) -> str:
    return f"{topic.name} (deleted)" if topic.deleted else topic.name


def _echo_findings(findings: Findings, verify: bool) -> None:
    click.echo()
    left_over = findings.of(Weight.LEFT_OVER)
    for finding in left_over[:FINDINGS_SHOWN_MAX]:
        click.echo(f"leftover: {finding}")
    if len(left_over) > FINDINGS_SHOWN_MAX:
        click.echo(f"leftover: and {len(left_over) - FINDINGS_SHOWN_MAX} more (see --json)")
    unreadable = findings.of(Weight.UNREADABLE)
    for finding in unreadable[:FINDINGS_SHOWN_MAX]:
        click.echo(f"unreadable: {finding}")
    if len(unreadable) > FINDINGS_SHOWN_MAX:
        click.echo(f"unreadable: and {len(unreadable) - FINDINGS_SHOWN_MAX} more (see --json)")
    harmed = findings.of(Weight.HARM)
    for finding in harmed:
        click.echo(f"DAMAGED: {finding}", err=True)
    if harmed:
        click.echo(
            "Objects of a store never change: restore the damaged ones from a backup", err=True
        )
    if findings.skipped:
        click.echo(f"not read: {findings.skipped} objects that a broker replaced during the check")
    if verify:
        verdict = f"{len(harmed)} problems" if harmed else "no damage found"
        sent_so = f", {len(unreadable)} unreadable record batches" if unreadable else ""
        click.echo(
            f"verified {findings.objects} objects, {shown_bytes(findings.bytes)}: {verdict},"
            f" {len(left_over)} leftovers{sent_so}"
        )
