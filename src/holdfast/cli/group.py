"""`holdfast group`: list, describe and reset consumer groups of any Kafka-compatible cluster.

Owns the options, the tables, and the error messages. A reset is the only way in which committed
offsets may go back: it shows what it will do, and asks.
"""

import asyncio
import dataclasses
import difflib
import enum

import click

from holdfast.cli.asking import run_with_cluster
from holdfast.cli.options import bootstrap_option, examples, json_option, need_yes, yes_option
from holdfast.cli.suggestions import SuggestingGroup
from holdfast.cli.tables import echo_json, echo_table
from holdfast.client.admin import EARLIEST, LATEST, describe_topics, list_offset
from holdfast.client.cluster import Cluster
from holdfast.client.groups import (
    GroupDescription,
    GroupListing,
    commit_offsets,
    committed_offsets,
    describe_group,
    list_groups,
)
from holdfast.client.refusals import RequestRefused
from holdfast.errors import CallError, ConfigurationError, RetryError
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.quantities import is_number

OFFSET_WAIT_MS = 3_000
NOBODY = "-"


class ResetTo(enum.Enum):
    """An end of the log to which a reset moves committed offsets."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupPartitionRow:
    """The progress of a group in one partition."""

    topic: str
    partition: int
    committed: int | None
    latest: int | None
    lag: int | None
    member: str | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A consumer group, as `holdfast group describe` shows it."""

    group: str
    protocol: str
    state: str
    assignor: str
    refused_commits: int
    members: list[str]
    partitions: list[GroupPartitionRow]


@click.group(
    cls=SuggestingGroup,
    epilog=examples("holdfast group list", "holdfast group describe orders-to-lake"),
)
def command() -> None:
    """List, describe and reset consumer groups.

    Works with any Kafka-compatible cluster.
    """


@command.command("list", epilog=examples("holdfast group list"))
@json_option
@bootstrap_option
def list_(as_json: bool, bootstrap: str) -> None:
    """List all consumer groups."""
    found = run_with_cluster(bootstrap, list_groups)
    if as_json:
        echo_json([row._asdict() for row in found])
        return
    rows = [(row.group_id, row.kind, row.state or NOBODY) for row in found]
    echo_table("", ["group", "protocol", "state"], rows)


@command.command(epilog=examples("holdfast group describe orders-to-lake"))
@click.argument("group")
@json_option
@bootstrap_option
def describe(group: str, as_json: bool, bootstrap: str) -> None:
    """Show the members, offsets and lag of GROUP.

    Refused commits are those of members that no longer owned the partition. Holdfast counts them
    since the group's coordinator started; Apache Kafka does not report them.
    """
    row = run_with_cluster(bootstrap, lambda cluster: _describe(cluster, group))
    if as_json:
        echo_json(row)
        return
    click.echo(f"group            {row.group}")
    click.echo(f"protocol         {row.protocol}")
    click.echo(f"state            {row.state}")
    click.echo(f"assignor         {row.assignor or NOBODY}")
    click.echo(f"members          {len(row.members)}")
    click.echo(f"refused commits  {row.refused_commits}")
    click.echo()
    echo_table(
        "",
        ["topic", "partition", "committed", "latest", "lag", "member"],
        [
            (p.topic, p.partition, p.committed, p.latest, p.lag, p.member or NOBODY)
            for p in row.partitions
        ],
    )


@command.command(
    epilog=examples(
        "holdfast group reset orders-to-lake --to earliest --topic orders",
        "holdfast group reset orders-to-lake --to +1700000000000 --yes --json",
    )
)
@click.argument("group")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME",
    help="Reset the offsets of this topic only. Can be repeated.",
)
@click.option(
    "--to",
    "to",
    required=True,
    metavar="WHERE",
    help="earliest, latest, an offset, or +MILLISECONDS since 1970 for a time.",
)
@yes_option
@json_option
@bootstrap_option
def reset(
    group: str, topics: tuple[str, ...], to: str, yes: bool, as_json: bool, bootstrap: str
) -> None:
    """Move the committed offsets of GROUP.

    Stop all members of the group first. Shows the old and the new offsets, and asks before it
    changes them.
    """
    need_yes(as_json=as_json, yes=yes)
    target = _target(to)
    plan = run_with_cluster(bootstrap, lambda cluster: _plan(cluster, group, topics, target))
    rows = [(w.topic, w.partition, before, after) for w, (before, after) in sorted(plan.items())]
    if not as_json:
        echo_table("", ["topic", "partition", "committed", "becomes"], rows)
    if not yes:
        click.confirm(f"Move the offsets of group {group}?", abort=True)
    offsets = {where: after for where, (_, after) in plan.items()}
    run_with_cluster(bootstrap, lambda cluster: _commit(cluster, group, offsets))
    if as_json:
        names = ("topic", "partition", "before", "after")
        moved = [dict(zip(names, row, strict=True)) for row in rows]
        echo_json({"action": "reset", "group": group, "offsets": moved})
    else:
        click.echo(f"moved {len(offsets)} committed offsets of group {group}")


def _target(text: str) -> ResetTo | int | tuple[int]:
    """Parse `--to` into an end of the log, an offset, or (in a tuple) a time in milliseconds."""
    lowered = text.strip().lower()
    for end in ResetTo:
        if lowered == end.value:
            return end
    digits = lowered.removeprefix("+")
    if not is_number(digits):
        raise click.BadParameter(
            f"{text!r} is none of earliest, latest, an offset such as 1200, or a time such as"
            " +1700000000000",
            param_hint="--to",
        )
    return (int(digits),) if lowered.startswith("+") else int(digits)


async def _described(cluster: Cluster, group: str) -> GroupDescription:
    found = await describe_group(cluster, group)
    if found is None:
        names = [row.group_id for row in await list_groups(cluster)]
        near = difflib.get_close_matches(group, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "see `holdfast group list`"
        raise ConfigurationError(f"there is no group {group!r}: {hint}")
    return found


async def _describe(cluster: Cluster, group: str) -> GroupRow:
    found = await _described(cluster, group)
    committed = await committed_offsets(cluster, group)
    owners = {where: member.member_id for member in found.members for where in member.owns}
    wanted = sorted({*committed, *owners})
    latest = await asyncio.gather(*(_offset_at(cluster, where, LATEST) for where in wanted))
    return GroupRow(
        group=group,
        protocol=found.kind,
        state=found.state,
        assignor=found.assignor,
        refused_commits=found.refused_commits,
        members=[member.member_id for member in found.members],
        partitions=[
            _row(where, committed.get(where), end, owners.get(where))
            for where, end in zip(wanted, latest, strict=True)
        ],
    )


def _row(
    where: TopicPartition, committed: int | None, latest: int | None, member: str | None
) -> GroupPartitionRow:
    lag = None if committed is None or latest is None else max(0, latest - committed)
    return GroupPartitionRow(
        topic=where.topic,
        partition=where.partition,
        committed=committed,
        latest=latest,
        lag=lag,
        member=member,
    )


async def _offset_at(cluster: Cluster, where: TopicPartition, at: int) -> int | None:
    try:
        listed = await list_offset(
            cluster, where.topic, where.partition, at=at, deadline_ms=OFFSET_WAIT_MS
        )
    except RetryError:
        return None
    return listed.offset


async def _plan(
    cluster: Cluster, group: str, topics: tuple[str, ...], target: ResetTo | int | tuple[int]
) -> dict[TopicPartition, tuple[int | None, int]]:
    """Return the committed offset of each partition, and what the reset makes of it."""
    found = await describe_group(cluster, group)
    if found is not None and found.members:
        raise CallError(
            f"group {group!r} has {len(found.members)} members: stop them first. A member that"
            " runs keeps its own position, and would commit it over the new one"
        )
    committed = await committed_offsets(cluster, group)
    wanted = sorted(where for where in committed if not topics or where.topic in topics)
    named = {where.topic for where in wanted}
    for topic in (await describe_topics(cluster)) if topics else ():
        if topic.name in topics and topic.name not in named:
            wanted += [TopicPartition(topic.name, partition) for partition in sorted(topic.leaders)]
    if not wanted:
        raise ConfigurationError(
            f"group {group!r} has no committed offsets"
            + (f" in {', '.join(topics)}" if topics else "")
            + ": name existing topics with --topic, or see `holdfast group list`"
        )
    moved = await asyncio.gather(*(_moved(cluster, where, target) for where in wanted))
    return {w: (committed.get(w), after) for w, after in zip(wanted, moved, strict=True)}


async def _moved(
    cluster: Cluster, where: TopicPartition, target: ResetTo | int | tuple[int]
) -> int:
    earliest = (await list_offset(cluster, where.topic, where.partition, at=EARLIEST)).offset
    latest = (await list_offset(cluster, where.topic, where.partition, at=LATEST)).offset
    match target:
        case ResetTo.EARLIEST:
            return earliest
        case ResetTo.LATEST:
            return latest
        case int():
            return min(max(target, earliest), latest)
        case (timestamp,):
            at = (await list_offset(cluster, where.topic, where.partition, at=timestamp)).offset
            return at if at >= 0 else latest


async def _commit(cluster: Cluster, group: str, offsets: dict[TopicPartition, int]) -> None:
    try:
        await commit_offsets(cluster, group, offsets)
    except RequestRefused as refused:
        raise CallError(f"{refused}: stop the members of the group, and try again") from refused


__all__ = ["GroupListing", "command"]
