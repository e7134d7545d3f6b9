"""Acknowledgements from a local disk: a lane's spools are replayed before the lane is served.

A partition whose newest records are on another disk waits for that disk, or continues without it.
Owns when that happens, and its log lines. Must never let a partition continue if its topic does not
allow it (unclean.leader.election.enable), nor let a lane be served before its spools were read.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from holdfast.errors import Fenced, RetryError, StopError
from holdfast.identifiers import BrokerId, LaneId, PartitionId
from holdfast.lane.claim import read_claim
from holdfast.lane.spool.disk import Disk
from holdfast.log.data_lane import DataLane
from holdfast.log.spool_replay import Replayed, continue_without, replay_spools

log = logging.getLogger("holdfast.broker")


class DiskAcks:
    """The spools of one broker: their replay, and the partitions that wait for a disk."""

    def __init__(
        self,
        *,
        disk: Disk | None,
        look_every_s: float,
        is_unclean: Callable[[PartitionId], bool],
        is_by_disk: Callable[[PartitionId], bool],
    ) -> None:
        self.disk = disk
        self.totals: Counter[str] = Counter()
        """Counts by name: record_batches, bytes and torn_bytes of replays, missing_offsets of
        partitions that continued, and acked_records of lanes that are no longer served here."""
        self._look_every_s = look_every_s
        self._is_unclean = is_unclean
        self._is_by_disk = is_by_disk
        self._said: dict[LaneId, set[str]] = {}
        self._failures: Counter[LaneId] = Counter()
        self.awaits: dict[LaneId, BrokerId] = {}
        """By lane that waits for a disk, the broker with that disk. It should own the lane."""

    async def open(self, lane: DataLane) -> None:
        """Replay the spools that this disk has of a lane, before anything of the lane is served."""
        await self._look(lane)
        for partition, claim in sorted(lane.awaited.items()):
            log.warning(
                "partition_offline partition=%s lane=%d claim=%d: its newest records may be on the"
                " disk of the broker that made this claim. Start that broker with its --spool"
                " directory, or set unclean.leader.election.enable=true on the topic to continue"
                " without these records",
                partition,
                lane.lane,
                claim,
            )
        lane.spawn(self._watch(lane))

    def left(self, lane: DataLane) -> None:
        """Keep the count of a lane that is no longer served."""
        self.totals["acked_records"] += lane.records_by_disk

    async def _watch(self, lane: DataLane) -> None:
        while lane.is_open:
            await asyncio.sleep(self._look_every_s)
            self._say(lane)
            for partition in list(lane.state.partitions):
                if lane.is_open and not self._is_by_disk(partition):
                    lane.lower_ceiling(partition)
            if lane.awaited and lane.is_open:
                try:
                    await self._look(lane)
                except StopError:
                    log.exception("spool_replay_stopped lane=%d", lane.lane)
                    return

    async def _look(self, lane: DataLane) -> None:
        try:
            if self.disk is not None:
                self._report(lane, await replay_spools(lane, self.disk))
            for partition in sorted(lane.awaited):
                if self._is_unclean(partition):
                    await self._go_on(lane, partition)
        except (Fenced, RetryError) as error:
            # The partitions stay offline, and the next look tries again.
            log.warning("spool_not_read lane=%d error=%s", lane.lane, error)
        await self._note_whose(lane)

    async def _note_whose(self, lane: DataLane) -> None:
        self.awaits.pop(lane.lane, None)
        if lane.awaited:
            newest = max(lane.awaited.values())
            try:
                claim = await read_claim(lane.store, lane.environment, lane.lane, newest)
            except RetryError as error:
                log.warning("claim_not_read lane=%d error=%s", lane.lane, error)
            else:
                self.awaits[lane.lane] = claim.broker_id

    def _report(self, lane: DataLane, replayed: Replayed) -> None:
        self.totals["record_batches"] += replayed.record_batches
        self.totals["bytes"] += replayed.bytes
        self.totals["torn_bytes"] += replayed.torn_bytes
        if replayed.partitions:
            log.info(
                "spool_replayed lane=%d partitions=%d record_batches=%d bytes=%d torn_bytes=%d",
                lane.lane,
                replayed.partitions,
                replayed.record_batches,
                replayed.bytes,
                replayed.torn_bytes,
            )
        for problem in replayed.problems:
            self._once(lane, f"spool_cut lane={lane.lane}: {problem}")
        for name in replayed.kept:
            self._once(
                lane,
                f"spool_kept lane={lane.lane} file={name}: it holds records that are not in the"
                " log, so it is not deleted; see `holdfast inspect --spool`",
            )

    async def _go_on(self, lane: DataLane, partition: PartitionId) -> None:
        missing = await continue_without(lane, partition)
        if missing is None:
            return
        self.totals["missing_offsets"] += missing.last_offset - missing.base_offset + 1
        log.warning(
            "records_missing partition=%s offsets=%d..%d claim=%d: the partition continues without"
            " these records, because unclean.leader.election.enable is true and the disk that may"
            " hold them is not here",
            partition,
            missing.base_offset,
            missing.last_offset,
            missing.claim,
        )

    def _say(self, lane: DataLane) -> None:
        """Log the problems of the disk that an operator should know."""
        if lane.bypassed["no disk"]:
            self._once(
                lane,
                f"no_spool lane={lane.lane}: this broker runs without --spool, so it acknowledges"
                " records of topics with holdfast.ack=disk only when they are in the store",
            )
        queue = lane.queue
        failures = queue.failures if queue is not None else 0
        if queue is not None and failures > self._failures[lane.lane]:
            log.warning(
                "spool_failed lane=%d times=%d error=%s: these records go to the store instead;"
                " check the disk of --spool",
                lane.lane,
                failures - self._failures[lane.lane],
                queue.failure or "none now",
            )
        self._failures[lane.lane] = failures

    def _once(self, lane: DataLane, message: str) -> None:
        said = self._said.setdefault(lane.lane, set())
        if message not in said:
            said.add(message)
            log.warning("%s", message)
