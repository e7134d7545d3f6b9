"""The connections to a group's coordinator: found once, kept until they fail, found again.

Owns two connections. Heartbeats and commits share one, so that even a commit whose caller waits no
longer is decided before the heartbeat that gives its partition up. Requests that may be held back
for a whole rebalance use the other.
"""

from holdfast.client.cluster import Cluster
from holdfast.client.connection import BrokerConnection
from holdfast.client.coordinators import coordinator


class CoordinatorLink:
    """The connections to the coordinator of one group."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self._group_id = group_id
        self._cluster = cluster
        self._slow_cluster = cluster.sibling()
        self._found: dict[bool, BrokerConnection] = {}

    async def connection(self, *, is_slow: bool = False) -> BrokerConnection:
        """Return a connection to the coordinator; find the coordinator if none is open."""
        known = self._found.get(is_slow)
        if known is not None and known.is_open:
            return known
        cluster = self._slow_cluster if is_slow else self._cluster
        found = await coordinator(cluster, self._group_id)
        self._found[is_slow] = found
        return found

    def forget(self) -> None:
        """Forget the coordinator: it may be another broker now, so the next request asks."""
        self._found.clear()

    async def close(self) -> None:
        """Close the connections that do not belong to the caller."""
        await self._slow_cluster.close()
