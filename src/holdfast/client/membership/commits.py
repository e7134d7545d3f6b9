"""Offset commits of a member, by topic name and under the member's current epoch.

Owns what is retried and for how long. Must never send an offset of a partition that is not owned
at that moment, or one without a member id and an epoch: the coordinator could not fence it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from holdfast.client.groups import send_commit
from holdfast.client.membership.core import Core
from holdfast.client.membership.interface import MemberSettings
from holdfast.client.membership.link import CoordinatorLink
from holdfast.client.refusals import RETRIABLE
from holdfast.environment import Environment
from holdfast.errors import RetryError
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.consumer_protocol import TopicPartition

NOT_OWNED = ErrorCode.STALE_MEMBER_EPOCH
"""The answer for a partition that this member does not own now; nothing was sent."""
UNANSWERED = ErrorCode.REQUEST_TIMED_OUT
"""The answer if it is unknown whether the offset was committed."""
PATIENCE_SECONDS = 30.0
REBALANCE_SECONDS = 10.0
BACKOFF_SECONDS = 0.1
STALE = frozenset({ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION})
PASSING = RETRIABLE - {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}

Answers = dict[TopicPartition, ErrorCode]


class MembershipCommits:
    """The commits of one membership."""

    def __init__(
        self,
        core: Core,
        link: CoordinatorLink,
        settings: MemberSettings,
        environment: Environment,
        heard: Callable[[], Awaitable[None]],
    ) -> None:
        """Take `heard`, which asks the coordinator for news and waits a while for its response."""
        self._core = core
        self._link = link
        self._settings = settings
        self._environment = environment
        self._heard = heard

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> Answers:
        """Return an answer for each partition. Retry errors that may pass for a bounded time."""
        answers: Answers = {}
        left = dict(offsets)
        begun = self._environment.monotonic()
        is_renewed = False
        while True:
            owned = self._core.held.names
            answers |= {where: NOT_OWNED for where in left if where not in owned}
            left = {where: offset for where, offset in left.items() if where in owned}
            if not left:
                return answers
            epoch = self._core.epoch
            found = await self._send(left, epoch)
            answers |= found
            spent = self._environment.monotonic() - begun
            stale = {where for where, code in found.items() if code in STALE}
            again = {where for where, code in found.items() if _may_pass(code, spent)}
            if stale and not is_renewed:
                is_renewed = True
                if self._core.epoch == epoch:
                    await self._heard()
                again |= stale if self._core.epoch != epoch else set()
            if not again:
                return answers
            if not again <= stale:
                await asyncio.sleep(BACKOFF_SECONDS)
            left = {where: left[where] for where in again}

    async def _send(self, offsets: Mapping[TopicPartition, int], epoch: int) -> Answers:
        member_id = self._core.member_id  # of this epoch: it may be another one after the wait
        try:
            connection = await self._link.connection()
            if not self._is_as_before(offsets, epoch):
                return dict.fromkeys(offsets, ErrorCode.STALE_MEMBER_EPOCH)
            found = await send_commit(
                connection,
                self._settings.group_id,
                offsets,
                epoch=epoch,
                member_id=member_id,
                instance_id=self._settings.instance_id,
            )
        except RetryError:
            self._link.forget()
            return dict.fromkeys(offsets, UNANSWERED)
        answers = dict.fromkeys(offsets, UNANSWERED) | found
        if any(code in PASSING for code in answers.values()):
            self._link.forget()
        return answers

    def _is_as_before(self, offsets: Mapping[TopicPartition, int], epoch: int) -> bool:
        """True if epoch and partitions are still the same after the coordinator was found."""
        return self._core.epoch == epoch and offsets.keys() <= self._core.held.names


def _may_pass(code: ErrorCode, spent_seconds: float) -> bool:
    if code == ErrorCode.REBALANCE_IN_PROGRESS:
        return spent_seconds < REBALANCE_SECONDS
    return code in PASSING and spent_seconds < PATIENCE_SECONDS
