"""Run a command against a cluster, with time limits and a helpful error if no broker answers.

Owns the time limits, and the error for a topic that does not exist.
"""

import asyncio
import difflib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from holdfast.client.admin import describe_topics
from holdfast.client.cluster import Cluster, TopicDescription
from holdfast.client.refusals import BrokerUnavailable
from holdfast.environment import SystemEnvironment
from holdfast.errors import ConfigurationError

T = TypeVar("T")

CONTACT_MS_MAX = 3_000
"""How long a command tries to reach a first broker."""
REQUEST_MS_MAX = 15_000


async def find_topic(
    cluster: Cluster, name: str, *, remedy: str = "see `holdfast topic list`"
) -> TopicDescription:
    """Return the topic. If it does not exist, raise an error with the nearest name or `remedy`."""
    topics = {topic.name: topic for topic in await describe_topics(cluster)}
    if name not in topics:
        near = difflib.get_close_matches(name, topics, n=1)
        hint = f"did you mean {near[0]!r}?" if near else remedy
        raise ConfigurationError(f"there is no topic {name!r}: {hint}")
    return topics[name]


def run_with_cluster(bootstrap: str, work: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
    return asyncio.run(_with_cluster(bootstrap, work))


async def _with_cluster(bootstrap: str, work: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
    """Do the work once a broker answers. Raise BrokerUnavailable if none does within seconds."""
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
