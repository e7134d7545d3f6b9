"""`holdfast topic`: create, list, describe, delete, produce and consume, on any Kafka.

Owns the options, the tables, and the error messages: which address or topic is wrong, and what to
do about it.
"""

import asyncio
import dataclasses

import click

from holdfast.cli.asking import CONTACT_MS_MAX, find_topic, run_with_cluster
from holdfast.cli.options import bootstrap_option, examples, json_option, need_yes, yes_option
from holdfast.cli.records.consume import consume
from holdfast.cli.records.produce import produce
from holdfast.cli.suggestions import SuggestingGroup
from holdfast.cli.tables import echo_json, echo_table
from holdfast.client.admin import (
    EARLIEST,
    LATEST,
    NewTopic,
    create_topics,
    delete_topics,
    describe_topics,
    list_offset,
)
from holdfast.client.cluster import Cluster, TopicDescription
from holdfast.client.refusals import (
    BrokerUnavailable,
    RefusedForNow,
    RequestRefused,
    UnsupportedByBroker,
    raise_for,
)
from holdfast.errors import CallError, ConfigurationError, RetryError
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

BROKER_DEFAULT = -1
"""The number of partitions that leaves the choice to the broker, as in Kafka's protocol."""
ASKED_AT_ONCE = 16
TOPIC_RESOURCE = 2
SET_ON_THE_TOPIC = 1
"""The config source in DescribeConfigs of a value that is set on the topic itself."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartitionRow:
    """One partition, as reported by the metadata and its leader."""

    partition: int
    leader: int
    leader_epoch: int
    earliest: int | None = None
    latest: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    """One topic."""

    name: str
    topic_id: str
    partitions: list[TopicPartitionRow]
    configs: dict[str, str] | None = None
    """Settings of the topic itself; None if they were not requested, or not reported."""


@click.group(
    cls=SuggestingGroup,
    epilog=examples("holdfast topic create orders --partitions 6", "holdfast topic list"),
)
def command() -> None:
    """Create, list, describe and delete topics; produce and consume records.

    Works with any Kafka-compatible cluster.
    """


command.add_command(produce)
command.add_command(consume)


@command.command(
    epilog=examples(
        "holdfast topic create orders --partitions 6",
        "holdfast topic create orders --config retention.ms=86400000",
    )
)
@click.argument("name")
@click.option(
    "--partitions",
    type=click.IntRange(1),
    metavar="NUMBER",
    help="The number of partitions. Without it the broker's default is used.",
)
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="KEY=VALUE",
    help="A topic setting by Kafka's name, such as retention.ms. Can be repeated.",
)
@json_option
@bootstrap_option
def create(
    name: str, partitions: int | None, configs: tuple[str, ...], as_json: bool, bootstrap: str
) -> None:
    """Create the topic NAME."""
    settings = dict(_parse_config(text) for text in configs)
    topic = NewTopic(name, BROKER_DEFAULT if partitions is None else partitions, configs=settings)
    made = run_with_cluster(bootstrap, lambda cluster: _create(cluster, topic))
    if as_json:
        echo_json(_changed("created", made))
    else:
        click.echo(f"created topic {name} with {_counted(len(made.partitions))}")


@command.command("list", epilog=examples("holdfast topic list --offsets"))
@click.option("--offsets", is_flag=True, help="Show the offsets of each partition.")
@json_option
@bootstrap_option
def list_(offsets: bool, as_json: bool, bootstrap: str) -> None:
    """List all topics."""
    rows = run_with_cluster(bootstrap, lambda cluster: _list(cluster, offsets=offsets))
    if as_json:
        echo_json(rows)
    elif offsets:
        echo_table(
            "",
            ["topic", "partition", "earliest", "latest"],
            [(row.name, p.partition, p.earliest, p.latest) for row in rows for p in row.partitions],
        )
    else:
        echo_table("", ["topic", "partitions"], [(row.name, len(row.partitions)) for row in rows])


@command.command(epilog=examples("holdfast topic describe orders"))
@click.argument("name")
@json_option
@bootstrap_option
def describe(name: str, as_json: bool, bootstrap: str) -> None:
    """Show the partitions and settings of the topic NAME."""
    row = run_with_cluster(bootstrap, lambda cluster: _describe(cluster, name))
    if as_json:
        echo_json(row)
        return
    click.echo(f"topic    {row.name}")
    click.echo(f"id       {row.topic_id}")
    for key, value in sorted((row.configs or {}).items()):
        click.echo(f"config   {key}={value}")
    click.echo()
    echo_table(
        "",
        ["partition", "leader", "epoch", "earliest", "latest"],
        [(p.partition, p.leader, p.leader_epoch, p.earliest, p.latest) for p in row.partitions],
    )


@command.command(epilog=examples("holdfast topic delete orders"))
@click.argument("name")
@yes_option
@json_option
@bootstrap_option
def delete(name: str, yes: bool, as_json: bool, bootstrap: str) -> None:
    """Delete the topic NAME and all of its records."""
    need_yes(as_json=as_json, yes=yes)
    row = _row(run_with_cluster(bootstrap, lambda cluster: find_topic(cluster, name)))
    if not yes:
        click.confirm(
            f"Delete topic {name} with {_counted(len(row.partitions))} and all of its records?",
            abort=True,
        )
    run_with_cluster(bootstrap, lambda cluster: _delete(cluster, name))
    if as_json:
        echo_json(_changed("deleted", row))
    else:
        click.echo(f"deleted topic {name}")


def _changed(action: str, row: TopicRow) -> dict[str, object]:
    return {
        "action": action,
        "topic": row.name,
        "topic_id": row.topic_id,
        "partitions": len(row.partitions),
    }


def _parse_config(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise click.BadParameter(
            f"{text!r} is not KEY=VALUE, as in retention.ms=86400000", param_hint="--config"
        )
    return key.strip(), value


def _counted(partitions: int) -> str:
    return "1 partition" if partitions == 1 else f"{partitions} partitions"


async def _create(cluster: Cluster, topic: NewTopic) -> TopicRow:
    try:
        await create_topics(cluster, [topic])
    except RequestRefused as refused:
        if refused.code == ErrorCode.TOPIC_ALREADY_EXISTS:
            raise CallError(
                f"topic {topic.name!r} exists already: see `holdfast topic describe {topic.name}`"
            ) from refused
        raise

    async def find() -> TopicDescription:
        # This broker may learn of the topic only after the controller has created it.
        try:
            return await find_topic(cluster, topic.name)
        except ConfigurationError as missing:
            raise RetryError(str(missing)) from missing

    return _row(await cluster.patiently(find, f"look at topic {topic.name!r}"))


async def _delete(cluster: Cluster, name: str) -> None:
    await delete_topics(cluster, [name])


async def _list(cluster: Cluster, *, offsets: bool) -> list[TopicRow]:
    rows = [_row(topic) for topic in await describe_topics(cluster)]
    return [await _with_offsets(cluster, row) for row in rows] if offsets else rows


async def _describe(cluster: Cluster, name: str) -> TopicRow:
    row = await _with_offsets(cluster, _row(await find_topic(cluster, name)))
    return dataclasses.replace(row, configs=await _configs(cluster, name))


def _row(topic: TopicDescription) -> TopicRow:
    return TopicRow(
        name=topic.name,
        topic_id=str(topic.topic_id),
        partitions=[
            TopicPartitionRow(partition=i, leader=leader.node_id, leader_epoch=leader.leader_epoch)
            for i, leader in sorted(topic.leaders.items())
        ],
    )


async def _with_offsets(cluster: Cluster, row: TopicRow) -> TopicRow:
    """Add offsets from the leaders. They stay unknown for a partition without a leader."""
    slots = asyncio.Semaphore(ASKED_AT_ONCE)

    async def offset(partition: int, at: int) -> int | None:
        async with slots:
            try:
                listed = await list_offset(
                    cluster, row.name, partition, at=at, deadline_ms=CONTACT_MS_MAX
                )
            except RetryError:
                return None
            return listed.offset

    async def asked(part: TopicPartitionRow) -> TopicPartitionRow:
        earliest, latest = await asyncio.gather(
            offset(part.partition, EARLIEST), offset(part.partition, LATEST)
        )
        return dataclasses.replace(part, earliest=earliest, latest=latest)

    partitions = await asyncio.gather(*(asked(part) for part in row.partitions))
    return dataclasses.replace(row, partitions=list(partitions))


async def _configs(cluster: Cluster, name: str) -> dict[str, str] | None:
    """Return the settings of the topic itself; None if the broker does not report them."""
    resource = DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource])

    async def attempt() -> dict[str, str]:
        connection = await cluster.any_connection()
        response = await connection.request(request, DescribeConfigsResponse)
        for result in response.results:
            raise_for(result.error_code, f"configurations of topic {name!r}", result.error_message)
            return {
                row.name: row.value or ""
                for row in result.configs
                if row.config_source == SET_ON_THE_TOPIC
            }
        raise BrokerUnavailable(f"{connection.address} says nothing of topic {name!r}")

    try:
        return await cluster.patiently(attempt, f"configurations of topic {name!r}")
    except (UnsupportedByBroker, RefusedForNow):
        return None
