"""A member of a consumer group: it joins, calls its `PartitionOwner`, commits and leaves.

Owns the choice of the protocol. Must never commit under an epoch other than the member's current
one.
"""

import asyncio
from collections.abc import Mapping

from holdfast.client.cluster import Cluster
from holdfast.client.membership.classic_core import ClassicCore
from holdfast.client.membership.consumer_core import ConsumerCore
from holdfast.client.membership.interface import MemberDescription, MemberSettings, PartitionOwner
from holdfast.client.membership.shell import Shell
from holdfast.client.refusals import RequestRefused, UnsupportedByBroker
from holdfast.environment import Environment
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.consumer_protocol import TopicPartition


class RunningMember:
    """A member that runs in one task. Any other task of the same loop may call `commit`."""

    def __init__(
        self,
        cluster: Cluster,
        settings: MemberSettings,
        owner: PartitionOwner,
        *,
        environment: Environment,
    ) -> None:
        """Use this cluster, which must not serve long polls: give those a `cluster.sibling()`."""
        self._cluster = cluster
        self._settings = settings
        self._owner = owner
        self._environment = environment
        self._shell = self._classic() if settings.protocol == "classic" else self._consumer()

    @property
    def description(self) -> MemberDescription:
        """The member as it is now."""
        core = self._shell.core
        return MemberDescription(core.member_id, core.epoch, core.state)

    async def run(self, stop: asyncio.Event) -> None:
        """Join and stay; at stop, revoke all and leave. Refused for errors that cannot pass.

        However it ends, nothing is owned afterwards. If it is cancelled, what was owned is lost.
        """
        try:
            await self._shell.run(stop)
        except (RequestRefused, UnsupportedByBroker) as error:
            if self._settings.protocol is not None or not _is_without_consumer_protocol(error):
                raise
            self._shell = self._classic()
            await self._shell.run(stop)

    async def commit(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, ErrorCode]:
        """Commit under the current epoch, and return the result for each partition.

        STALE_MEMBER_EPOCH: the member does not own the partition now. REQUEST_TIMED_OUT: it is
        unknown whether the offset was committed.
        """
        if not offsets:
            return {}
        return await self._shell.commits.commit(offsets)

    def _consumer(self) -> Shell:
        core = ConsumerCore(self._settings, member_id=str(self._environment.new_uuid()))
        return Shell(self._cluster, self._settings, self._owner, core, self._environment)

    def _classic(self) -> Shell:
        core = ClassicCore(self._settings)
        return Shell(self._cluster, self._settings, self._owner, core, self._environment)


def _is_without_consumer_protocol(error: RequestRefused | UnsupportedByBroker) -> bool:
    return isinstance(error, UnsupportedByBroker) or error.code == ErrorCode.UNSUPPORTED_VERSION
