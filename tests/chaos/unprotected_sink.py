"""`holdfast sink` with the bug of seed 001 put back; for tests that must fail.

At a revoke the open batch is thrown away, and a moment later, when the partition is another's,
the end of all that was read is committed for it. And what was committed is believed: a partition
goes on there, whatever has landed.
"""

import asyncio
import sys
from collections.abc import Collection
from dataclasses import replace

from holdfast.cli import sink
from holdfast.client.groups import committed_positions
from holdfast.landing.chain import Chain
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.sink import run
from holdfast.sink.encoder import Sealed
from holdfast.sink.flow import Flow
from holdfast.sink.ownership import Token
from holdfast.sink.worker import SinkWorker

LATE_SECONDS = 1.0
ACKED_LATE = "acked_late"
"""Said in the log, with the partitions whose late ack the broker took."""


class LateWorker(SinkWorker):
    """Acks after it has lost."""

    async def revoked(self, partitions: Collection[TopicPartition], seconds: float) -> None:
        self._log("revoked", partitions)
        read = {
            where: flow._encoder.next_offset
            for where in partitions
            if (flow := self._flows.get(where)) is not None and flow._encoder is not None
        }
        self._let_go(partitions)
        self._late = asyncio.ensure_future(self._ack_late(read))

    async def _ack_late(self, read: dict[TopicPartition, int]) -> None:
        await asyncio.sleep(LATE_SECONDS)
        commits = self.member._shell.commits
        commits._is_as_before = lambda offsets, epoch: True
        answers = await commits._send(read, self.member.description.epoch)
        self._log(ACKED_LATE, [where for where, code in answers.items() if code == ErrorCode.NONE])

    async def _beginning(self, token: Token, chain: Chain) -> int:
        begin = await super()._beginning(token, chain)
        group_id = self._settings.member.group_id
        found = await committed_positions(self._control, group_id, [token.where])
        return found[token.where].offset if token.where in found else begin


class BelievingFlow(Flow):
    """Lands what begins after the end of the chain as if nothing were between."""

    async def _place(self, sealed: Sealed) -> tuple[int, bool]:
        if not self._has_origin:
            end = await self._chains.records.begin(sealed.first_offset)
            self._has_origin = True
            if end < sealed.first_offset:
                sealed = replace(sealed, first_offset=end)
        return await super()._place(sealed)


def main() -> None:
    run.SinkWorker = LateWorker
    sys.modules[SinkWorker.__module__].Flow = BelievingFlow
    sink.command.main(args=sys.argv[1:], standalone_mode=True)


if __name__ == "__main__":
    main()
