"""A member of a consumer group: joins, stays, tells its owner what it owns, commits, leaves.

Owns the choice of the protocol. Must never commit under an epoch that is not the member's of now.
"""

import asyncio
from collections.abc import Mapping

from holdfast.client.cluster import Cluster
from holdfast.client.membership.interface import MemberDescription, MemberSettings, Owner
from holdfast.environment import Environment
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.consumer_protocol import TopicPartition


class Member:
    """Runs in one task; `commit` may be called from any other of the same loop."""

    def __init__(
        self,
        cluster: Cluster,
        settings: MemberSettings,
        owner: Owner,
        *,
        environment: Environment,
    ) -> None:
        """The cluster must not serve long polls: give those a `cluster.sibling()`."""
        self._cluster = cluster
        self._settings = settings
        self._owner = owner
        self._environment = environment

    @property
    def description(self) -> MemberDescription:
        """The member as it is now."""
        raise NotImplementedError

    async def run(self, stop: asyncio.Event) -> None:
        """Join and stay; at stop, revoke all and leave. Refused for what cannot pass."""
        raise NotImplementedError

    async def commit(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, ErrorCode]:
        """Commit under the epoch of now; what is not owned now is answered and not sent."""
        raise NotImplementedError
