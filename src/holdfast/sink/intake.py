"""Fetches of a sink: one request at a time to each leader, for all its partitions that want more.

Owns the requests under way and the memory reserved for their responses. A partition is fetched
again while its last response is being encoded, up to a bound. Without room in the budget nothing is
fetched. Must never skip an offset: if the log no longer has the next one, a person decides, or the
setting failOnDataLoss.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from holdfast.client.admin import EARLIEST, LATEST, list_offset
from holdfast.client.cluster import Cluster
from holdfast.client.fetch import PartitionFetch, PartitionToFetch
from holdfast.client.fetch_many import Unfetched, fetch_many
from holdfast.environment import Environment
from holdfast.errors import HoldfastError, RetryError, StopError
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.sink.budget import Budget
from holdfast.sink.flow import ENCODED_SHARE, Flow

READ_AHEAD_BYTES: Final = 8 * 1024 * 1024
"""Bytes of one partition that may be fetched and not yet encoded."""
PARTITION_BYTES_MAX: Final = 4 * 1024 * 1024
BYTES_MIN: Final = 1024 * 1024
"""The least room that a fetch needs, or a quarter of the largest response, if that is smaller."""
BUSY_WAIT_MS: Final = 20
"""How long a broker may wait for records while other partitions will want some soon."""
PAUSE_S: Final = 0.2


class Intake:
    """All fetches of a sink."""

    def __init__(
        self,
        cluster: Cluster,
        flows: Callable[[], Iterable[Flow]],
        budget: Budget,
        *,
        environment: Environment,
        bytes_max: int,
        wait_ms_max: int,
        read_committed: bool,
        covers_loss: bool,
    ) -> None:
        self.is_paused = False
        """True if fetching pauses, because the budget has no room."""
        self.problem: str | None = None
        """Why a broker does not answer now; None if the last one did."""
        self._cluster = cluster
        self._flows = flows
        self._budget = budget
        self._environment = environment
        self._bytes_max = bytes_max
        self._wait_ms_max = wait_ms_max
        self._read_committed = read_committed
        self._covers_loss = covers_loss
        self._under_way: dict[int, asyncio.Task[None]] = {}
        self._moved = asyncio.Event()

    def moved(self) -> None:
        """Look again: there may be something to fetch."""
        self._moved.set()

    async def run(self) -> None:
        """Fetch until cancelled, or until an error that a person must look at."""
        try:
            while True:
                self._moved.clear()
                self._reap()
                await self._start()
                await self._moved.wait()
        finally:
            tasks = list(self._under_way.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _reap(self) -> None:
        for node_id, task in list(self._under_way.items()):
            if task.done():
                del self._under_way[node_id]
                task.result()

    async def _start(self) -> None:
        by_node: dict[int, list[Flow]] = {}
        is_waiting = False
        for flow in list(self._flows()):
            if flow.wants is None:
                continue
            if flow.inbox_bytes >= READ_AHEAD_BYTES:
                is_waiting = True
                continue
            node_id = await self._leader(flow)
            if node_id is not None and node_id not in self._under_way:
                by_node.setdefault(node_id, []).append(flow)
        self.is_paused = False
        for node_id, flows in by_node.items():
            # The other half is left for responses of other leaders.
            room = min(self._bytes_max, self._budget.free // (2 * ENCODED_SHARE))
            self.is_paused = room < min(BYTES_MIN, self._bytes_max // 4)
            if self.is_paused:
                return
            wanted = [flow for flow in flows if flow.wants is not None]
            for flow in wanted:
                flow.is_fetching = True
            self._budget.hold(("fetch", node_id), room * ENCODED_SHARE)
            wait_ms = BUSY_WAIT_MS if is_waiting else self._wait_ms_max
            fetch = self._fetch(node_id, wanted, room, wait_ms)
            self._under_way[node_id] = asyncio.ensure_future(fetch)

    async def _leader(self, flow: Flow) -> int | None:
        where = flow.token.where
        try:
            return (await self._cluster.leader(where.topic, where.partition)).node_id
        except RetryError as error:
            flow.problem = str(error)
            self._later()
            return None

    def _later(self) -> None:
        asyncio.get_running_loop().call_later(PAUSE_S, self._moved.set)

    async def _fetch(self, node_id: int, flows: Sequence[Flow], room: int, wait_ms: int) -> None:
        asked = {flow.token.where: (flow, flow.position or 0) for flow in flows}
        wanted = [
            PartitionToFetch(where.topic, where.partition, offset, min(PARTITION_BYTES_MAX, room))
            for where, (_, offset) in asked.items()
        ]
        try:
            answers = await fetch_many(
                self._cluster,
                node_id,
                wanted,
                max_wait_ms=wait_ms,
                max_bytes=room,
                read_committed=self._read_committed,
            )
            self.problem = None
        except RetryError as error:
            self.problem = str(error)
            answers = {}
            await self._look_again({where.topic for where in asked})
        finally:
            self._budget.hold(("fetch", node_id), 0)
            for flow in flows:
                flow.is_fetching = False
        try:
            await self._hand_out(asked, answers)
        finally:
            self._moved.set()

    async def _hand_out(
        self,
        asked: dict[TopicPartition, tuple[Flow, int]],
        answers: dict[TopicPartition, PartitionFetch | Unfetched],
    ) -> None:
        stale: set[str] = set()
        for where, answer in answers.items():
            flow, offset = asked[where]
            if isinstance(answer, PartitionFetch):
                flow.log_end = (
                    answer.last_stable_offset if self._read_committed else answer.high_watermark
                )
                flow.offer(answer)
            elif answer.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._out_of_range(flow, offset)
            elif answer.code != ErrorCode.NONE:
                flow.problem = f"{where.topic}-{where.partition}: {answer.code.name}"
                stale.add(where.topic)
        if stale:
            await self._look_again(stale)

    async def _look_again(self, topics: set[str]) -> None:
        """Refresh the metadata of these topics after a pause."""
        await asyncio.sleep(PAUSE_S)
        try:
            await self._cluster.refresh(sorted(topics))
        except RetryError as error:
            self.problem = str(error)

    async def _out_of_range(self, flow: Flow, offset: int) -> None:
        where = flow.token.where
        name = f"{where.topic}-{where.partition}"
        try:
            first = (await list_offset(self._cluster, *where, at=EARLIEST)).offset
            end = (await list_offset(self._cluster, *where, at=LATEST)).offset
        except HoldfastError as error:
            flow.problem = str(error)
            return
        if flow.position != offset or first <= offset <= end:
            return
        if offset > end:
            raise StopError(
                f"{name}: the sink would continue at offset {offset}, but the log ends at {end}."
                " The last records of the log were lost, or the topic was deleted and created"
                " again. Set another 'to' below [output]"
            )
        if not self._covers_loss:
            raise StopError(
                f"{name}: offsets {offset} to {first - 1} were deleted from the log before they had"
                " landed. To continue without them, set failOnDataLoss = false below [source]"
            )
        flow.skip_to(first)
