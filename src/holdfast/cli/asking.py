"""Commands that ask a cluster: where it is, how long it may take, what is said if nobody answers.

Owns the options that such commands share.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import click

from holdfast.client.cluster import Cluster
from holdfast.client.refusals import BrokerUnavailable
from holdfast.environment import SystemEnvironment

T = TypeVar("T")

BOOTSTRAP_DEFAULT = "127.0.0.1:9092"
CONTACT_MS_MAX = 3_000
"""How long a broker that does not answer at all is waited for."""
REQUEST_MS_MAX = 15_000


def bootstrap_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--bootstrap",
        default=BOOTSTRAP_DEFAULT,
        show_default=True,
        help="HOST:PORT of a broker, or several with commas.",
    )(command)


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--json", "as_json", is_flag=True, help="For machines.")(command)


def run_with_cluster(bootstrap: str, work: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
    return asyncio.run(_with_cluster(bootstrap, work))


async def _with_cluster(bootstrap: str, work: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
    """Reach a broker first, within seconds or not at all; then do the work."""
    async with Cluster(
        bootstrap,
        environment=SystemEnvironment(),
        client_id="holdfast-cli",
        request_timeout_ms=REQUEST_MS_MAX,
        deadline_ms=REQUEST_MS_MAX,
    ) as cluster:
        problem = "it did not answer"
        try:
            async with asyncio.timeout(CONTACT_MS_MAX * 1.5 / 1000):
                await cluster.patiently(
                    cluster.any_connection, bootstrap, deadline_ms=CONTACT_MS_MAX
                )
                problem = ""
        except TimeoutError:
            pass
        except BrokerUnavailable as error:
            problem = str(error.__cause__ or error)
        if problem:
            raise BrokerUnavailable(
                f"no broker can be reached at {bootstrap}: start one with `holdfast serve --store"
                f" DIRECTORY --listen {bootstrap.split(',')[0]}`, or name another with"
                f" --bootstrap HOST:PORT\n  reason: {problem}"
            )
        return await work(cluster)
