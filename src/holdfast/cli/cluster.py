"""`holdfast cluster`: brokers and lanes, and where lanes should be.

Owns the options, the tables, the waiting with its progress, and what a person is told when it does
not work.
"""

import asyncio
from collections.abc import Callable

import click

from holdfast.cli.asking import bootstrap_option, json_option, run_with_cluster
from holdfast.cli.tables import echo_json, echo_table
from holdfast.client.cluster import Cluster
from holdfast.client.lanes import (
    NOBODY,
    BrokerStatus,
    ClusterStatus,
    cluster_status,
    drain_broker,
    place_lane,
)
from holdfast.errors import RetryError

LOOK_S = 0.25
NOTHING = "-"


@click.group()
def command() -> None:
    """Show brokers and lanes; move lanes, drain brokers."""


@command.command()
@json_option
@bootstrap_option
def status(as_json: bool, bootstrap: str) -> None:
    """Show who is there, and who leads which lane.

    Each partition of a topic is in one lane; the owner of a lane leads all that is in it. Lane 0 is
    the control lane; its owner is the controller.
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


@command.command()
@click.argument("lane", type=click.IntRange(0))
@click.option(
    "--to",
    "to",
    required=True,
    metavar="BROKER",
    help="The id of a broker, or `any` to leave the lane to the cluster again.",
)
@click.option("--timeout", "timeout_s", default=60, show_default=True, type=click.IntRange(1))
@bootstrap_option
def move(lane: int, to: str, timeout_s: int, bootstrap: str) -> None:
    """Move a lane to a broker, and keep it there while that broker is up."""
    if to != "any" and not to.isdigit():
        raise click.BadParameter(f"{to!r} is neither the id of a broker nor `any`", param_hint="to")
    broker_id = NOBODY if to == "any" else int(to)

    async def work(cluster: Cluster) -> None:
        await place_lane(cluster, lane, broker_id)
        if broker_id != NOBODY:
            await _until(cluster, lambda found: lane in _lanes_of(found, broker_id), timeout_s)

    run_with_cluster(bootstrap, work)
    where = f"is at broker {broker_id}" if broker_id != NOBODY else "may be at any broker"
    click.echo(f"lane {lane} {where}")


@command.command()
@click.argument("broker", type=click.IntRange(0))
@click.option("--end", "ends", is_flag=True, help="Let the broker have lanes again.")
@click.option("--timeout", "timeout_s", default=60, show_default=True, type=click.IntRange(1))
@bootstrap_option
def drain(broker: int, ends: bool, timeout_s: int, bootstrap: str) -> None:
    """Have a broker hand all its lanes over, and take none until it is started again.

    SIGTERM does the same before the broker ends.
    """

    async def work(cluster: Cluster) -> None:
        await drain_broker(cluster, broker, is_draining=not ends)
        if not ends:
            await _until(cluster, lambda found: not _lanes_of(found, broker), timeout_s)

    run_with_cluster(bootstrap, work)
    click.echo(f"broker {broker} may have lanes again" if ends else f"broker {broker} has no lanes")


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
            f"not done within {timeout_s} s; lanes are at  {shown}\n"
            "  it goes on by itself: look with `holdfast cluster status`, and at the brokers' logs"
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
