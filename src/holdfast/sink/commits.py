"""Offset commits of a sink: only what has landed, and only for partitions that it owns now.

Owns the requests. The token of a partition is checked in the same step that makes the request, and
the request carries the member epoch. So a completion that comes late is not sent, and the broker
refuses a commit that a rebalance overtakes on its way. Committed offsets are for lag tools and
people; the chain decides where a partition continues.
"""

from collections.abc import Iterable

from holdfast.client.membership.member import RunningMember
from holdfast.errors import RetryError
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.sink.counters import Counters
from holdfast.sink.flow import Flow
from holdfast.sink.ownership import Ownership


class SinkCommits:
    """The commits of a sink."""

    def __init__(self, member: RunningMember, ownership: Ownership, counters: Counters) -> None:
        self.problem: str | None = None
        self._member = member
        self._ownership = ownership
        self._counters = counters

    async def commit(self, flows: Iterable[Flow]) -> None:
        """Commit what has landed since the last call."""
        due: dict[TopicPartition, tuple[Flow, int]] = {}
        for flow in flows:
            offset = flow.committable
            # A previous member may have committed past a marker that follows the end of the chain.
            if offset is None or (flow.committed is not None and offset <= flow.committed):
                continue
            if not self.may_commit(flow):
                self._counters.commits_withheld += 1
                continue
            due[flow.token.where] = flow, offset
        if not due:
            return
        try:
            codes = await self._member.commit({where: offset for where, (_, offset) in due.items()})
        except RetryError as error:
            self.problem = str(error)
            return
        self.problem = None
        for where, code in codes.items():
            flow, offset = due[where]
            if code == ErrorCode.NONE:
                flow.committed = offset
                self._counters.commits += 1
            else:
                self.problem = f"commit of {where.topic}-{where.partition}: {code.name}"

    def may_commit(self, flow: Flow) -> bool:
        """True if the flow's assignment still lasts."""
        return self._ownership.holds(flow.token)
