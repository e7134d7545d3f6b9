"""`holdfast cluster`: show brokers and lanes, move a lane, drain a broker.

Owns the options, the tables, waiting with progress, and the error messages.
"""

import asyncio
import sys
from collections.abc import Callable

import click

from holdfast.cli.asking import run_with_cluster
from holdfast.cli.options import bootstrap_option, examples, json_option, timeout_option
from holdfast.cli.suggestions import SuggestingGroup
from holdfast.cli.tables import echo_json, echo_table
from holdfast.client.cluster import Cluster
from holdfast.client.health import Health, HealthVerdict, cluster_health
from holdfast.client.lanes import (
    NOBODY,
    BrokerStatus,
    ClusterStatus,
    cluster_status,
    drain_broker,
    place_lane,
)
from holdfast.client.refusals import BrokerUnavailable, RefusedForNow
from holdfast.errors import RetryError
from holdfast.quantities import is_number

LOOK_S = 0.25
NOTHING = "-"


@click.group(
    cls=SuggestingGroup,
    epilog=examples("holdfast cluster status", "holdfast cluster health"),
)
def command() -> None:
    """Show the brokers and lanes of a Holdfast cluster; move a lane, drain a broker.

    A lane is a part of the log that one broker owns. Each partition belongs to one lane, and the
    owner of the lane leads the partition.
    """


@command.command(epilog=examples("holdfast cluster status", "holdfast cluster status --json"))
@json_option
@bootstrap_option
def status(as_json: bool, bootstrap: str) -> None:
    """Show all brokers and the lanes that they own.

    Lane 0 is the control lane. Its owner is the controller of the cluster.
    """
    found = run_with_cluster(bootstrap, cluster_status)
    if as_json:
        echo_json(_plain(found))
        return
    click.echo(f"cluster     {found.cluster_id}")
    click.echo(f"controller  {found.controller_id if found.controller_id >= 0 else NOTHING}")
    click.echo()
    echo_table(
        "",
        ["broker", "address", "rack", "state", "lanes"],
        [
            (
                each.broker_id,
                f"{each.host}:{each.port}",
                each.rack or NOTHING,
                _state(each),
                ", ".join(map(str, each.lanes)) or NOTHING,
            )
            for each in found.brokers
        ],
    )


@command.command(epilog=examples("holdfast cluster health", "holdfast cluster health --json"))
@json_option
@bootstrap_option
def health(as_json: bool, bootstrap: str) -> None:
    """Check whether every partition is served.

    \b
    Exit codes:
      0  healthy
      1  degraded: every partition is served, but something needs attention,
         such as a broker that does not answer
      2  unhealthy: a lane has no owner, a partition has no leader, or no
         broker can be reached
    """
    try:
        found = run_with_cluster(bootstrap, cluster_health)
    except (BrokerUnavailable, RefusedForNow) as error:
        if as_json:
            echo_json({"verdict": "unhealthy", "problems": [str(error)], "warnings": []})
        else:
            click.echo(f"unhealthy: {error}")
        sys.exit(HealthVerdict.UNHEALTHY)
    if as_json:
        echo_json(_plain_health(found))
    else:
        _echo_health(found)
    sys.exit(found.verdict)


def _echo_health(found: Health) -> None:
    brokers = found.status.brokers
    up = sum(each.report is not None for each in brokers)
    led = found.partitions - len(found.partitions_without_leader)
    owned = found.lanes + 1 - len(found.lanes_without_owner)
    behind = max(found.control_lag.values(), default=0)
    click.echo(f"brokers     {up} of {len(brokers)} answer")
    click.echo(f"lanes       {owned} of {found.lanes + 1} have an owner")
    click.echo(f"partitions  {led} of {found.partitions} have a leader")
    click.echo(f"control     the slowest broker is {behind} objects behind")
    for text in (*found.problems, *found.warnings):
        click.echo(f"  {text}")
    click.echo(found.verdict.name.lower())


def _plain_health(found: Health) -> dict[str, object]:
    return {
        "verdict": found.verdict.name.lower(),
        "problems": found.problems,
        "warnings": found.warnings,
        "brokers": {str(each.broker_id): _state(each) for each in found.status.brokers},
        "lanes": found.lanes,
        "lanes_without_owner": found.lanes_without_owner,
        "partitions": found.partitions,
        "partitions_without_leader": [
            {"topic": topic, "partition": number}
            for topic, number in found.partitions_without_leader
        ],
        "control_lag": {str(broker): lag for broker, lag in found.control_lag.items()},
    }


@command.command(
    epilog=examples("holdfast cluster move 1 --to 2", "holdfast cluster move 1 --to any")
)
@click.argument("lane", type=click.IntRange(0))
@click.option(
    "--to",
    "to",
    required=True,
    metavar="BROKER",
    help="The id of a broker, or `any` to let the cluster choose again.",
)
@timeout_option
@json_option
@bootstrap_option
def move(lane: int, to: str, timeout_s: int, as_json: bool, bootstrap: str) -> None:
    """Move LANE to a broker.

    The lane stays there for as long as that broker is up.
    """
    if to != "any" and not is_number(to):
        raise click.BadParameter(
            f"{to!r} is neither the id of a broker nor `any`", param_hint="--to"
        )
    broker_id = NOBODY if to == "any" else int(to)

    async def work(cluster: Cluster) -> None:
        await place_lane(cluster, lane, broker_id)
        if broker_id != NOBODY:
            await _until(cluster, lambda found: lane in _lanes_of(found, broker_id), timeout_s)

    run_with_cluster(bootstrap, work)
    if as_json:
        owner = None if broker_id == NOBODY else broker_id
        echo_json({"action": "moved", "lane": lane, "broker": owner})
    elif broker_id == NOBODY:
        click.echo(f"lane {lane} may be at any broker")
    else:
        click.echo(f"lane {lane} is at broker {broker_id}")


@command.command(epilog=examples("holdfast cluster drain 2", "holdfast cluster drain 2 --end"))
@click.argument("broker", type=click.IntRange(0))
@click.option("--end", "ends", is_flag=True, help="End the drain: the broker gets lanes again.")
@timeout_option
@json_option
@bootstrap_option
def drain(broker: int, ends: bool, timeout_s: int, as_json: bool, bootstrap: str) -> None:
    """Move all lanes away from BROKER.

    The broker gets no lanes until it is restarted, or until the drain is ended with --end. SIGTERM
    drains a broker too, before it stops.
    """

    async def work(cluster: Cluster) -> None:
        await drain_broker(cluster, broker, is_draining=not ends)
        if not ends:
            await _until(cluster, lambda found: not _lanes_of(found, broker), timeout_s)

    run_with_cluster(bootstrap, work)
    if as_json:
        echo_json({"action": "drain_ended" if ends else "drained", "broker": broker})
    elif ends:
        click.echo(f"broker {broker} may have lanes again")
    else:
        click.echo(f"broker {broker} has no lanes")


async def _until(
    cluster: Cluster, is_done: Callable[[ClusterStatus], bool], timeout_s: int
) -> None:
    shown = ""
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                found = await cluster_status(cluster)
                now = "  ".join(f"{b.broker_id}: {list(b.lanes)}" for b in found.brokers)
                if now != shown:
                    click.echo(f"lanes  {now}", err=True)
                    shown = now
                if is_done(found):
                    return
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise RetryError(
            f"not done within {timeout_s} s. The lanes of each broker are now  {shown}\n"
            "  The cluster goes on by itself: see `holdfast cluster status` and the brokers' logs"
        ) from None


def _lanes_of(found: ClusterStatus, broker_id: int) -> list[int]:
    return [lane for each in found.brokers if each.broker_id == broker_id for lane in each.lanes]


def _state(status: BrokerStatus) -> str:
    if status.report is None:
        return "does not answer"
    return "draining" if status.report.is_draining else "up"


def _plain(found: ClusterStatus) -> dict[str, object]:
    return {
        "cluster_id": found.cluster_id,
        "controller_id": found.controller_id,
        "brokers": [
            {
                "broker_id": each.broker_id,
                "host": each.host,
                "port": each.port,
                "rack": each.rack,
                "state": _state(each),
                "lanes": {str(lane): epoch for lane, epoch in each.lanes.items()},
            }
            for each in found.brokers
        ],
    }
