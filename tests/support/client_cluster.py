"""A body of code with a client of a running cluster, in an event loop of its own."""

import asyncio
from collections.abc import Awaitable, Callable

from holdfast.client import admin
from holdfast.client.cluster import Cluster
from holdfast.environment import SystemEnvironment


def with_client(
    bootstrap: str, body: Callable[[Cluster], Awaitable[None]], *, seconds_max: float = 60
) -> None:
    """Run the body with a client that soon gives up."""

    async def main() -> None:
        async with Cluster(
            bootstrap,
            environment=SystemEnvironment(),
            request_timeout_ms=10_000,
            deadline_ms=20_000,
        ) as cluster:
            await asyncio.wait_for(body(cluster), seconds_max)

    asyncio.run(main())


async def create_topic(cluster: Cluster, name: str, partitions: int, **configs: str) -> str:
    """Create a topic and wait until it is there; its name."""
    await admin.create_topics(cluster, [admin.NewTopic(name, partitions, 1, configs)])
    await admin.describe_topic(cluster, name)
    return name
