"""The way to a group's coordinator: found once, kept until it fails, found again.

Owns two connections to it. Heartbeats and commits share one, so that a commit that nobody waits for
any more is still decided before the heartbeat that gives its partition up. What may be held back
for a whole rebalance goes over the other.
"""

from holdfast.client.cluster import Cluster
from holdfast.client.connection import Connection
from holdfast.client.coordinators import coordinator


class CoordinatorLink:
    """Of one group."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self._group_id = group_id
        self._cluster = cluster
        self._slow_cluster = cluster.sibling()
        self._found: dict[bool, Connection] = {}

    async def connection(self, *, is_slow: bool = False) -> Connection:
        """To whoever coordinates the group, as far as is known."""
        known = self._found.get(is_slow)
        if known is not None and known.is_open:
            return known
        cluster = self._slow_cluster if is_slow else self._cluster
        found = await coordinator(cluster, self._group_id)
        self._found[is_slow] = found
        return found

    def forget(self) -> None:
        """Another broker may coordinate the group now: ask before the next request."""
        self._found.clear()

    async def close(self) -> None:
        """Close what is not the caller's."""
        await self._slow_cluster.close()
