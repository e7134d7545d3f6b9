"""A broker's background work: retention, rewriting, purging deleted topics, expiring producers.

Owns when this is done, never how. Each step is safe to repeat and safe to stop anywhere. A failure
in one lane is logged and tried again. It must never end the work on the other lanes.
"""

import asyncio
import logging
from collections.abc import Collection, Iterator
from uuid import UUID

from holdfast.broker.broker import Broker
from holdfast.cluster.facts import TopicPurged
from holdfast.errors import HoldfastError, StopError
from holdfast.identifiers import LaneNumber
from holdfast.log.data_lane import DataLane
from holdfast.log.facts import PartitionRemoved, ProducersExpired
from holdfast.log.retention import decide_retention
from holdfast.log.rewriter import collect, is_due, purge_removed, rewrite, sweep_segments

log = logging.getLogger("holdfast.broker")


class Maintenance:
    """The background work of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._tasks: dict[DataLane, asyncio.Task[None]] = {}
        self._purging: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin the work on the lanes that are served now, and on each lane once it is served."""
        served = self._broker.served
        for lane in served.lanes.values():
            self._begin(lane)
        served.when_served.append(self._begin)
        served.when_left.append(self._end)
        self._purging = asyncio.get_running_loop().create_task(self._purge_topics())

    def _begin(self, lane: DataLane) -> None:
        self._tasks[lane] = asyncio.get_running_loop().create_task(self._lane(lane))

    def _end(self, lane: DataLane) -> None:
        task = self._tasks.pop(lane, None)
        if task is not None:
            task.cancel()

    async def stop(self) -> None:
        served = self._broker.served
        served.when_served.remove(self._begin)
        served.when_left.remove(self._end)
        tasks = list(self._tasks.values())
        if self._purging is not None:
            tasks.append(self._purging)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _lane(self, lane: DataLane) -> None:
        settings = self._broker.settings
        retention_interval_s = settings.retention_check_interval_ms / 1000
        retention_due = self._broker.environment.monotonic() + retention_interval_s
        swept = False
        while lane.is_open:
            await asyncio.sleep(settings.maintenance_interval_s)
            try:
                if not swept:
                    await sweep_segments(lane)
                    claim = lane.cursor.claim
                    await lane.sweep(lane.state.claims, up_to=LaneNumber(claim - 1))
                    swept = True
                await self._clear_deleted(lane)
                await self._broker.transactions[lane.lane].abort_overdue()
                if self._broker.environment.monotonic() >= retention_due:
                    # Records that old settings delete do not come back with the new settings.
                    await self._broker.look()
                    if self._broker.view.barrier() is None:
                        retention_due += retention_interval_s
                        self._retain(lane)
                        await self._expire_offsets(lane)
                await purge_removed(lane)
                await collect(lane)
                if is_due(lane, settings.rewrite):
                    written = await rewrite(lane, settings.rewrite)
                    log.info("lane_rewritten lane=%d bytes=%d", lane.lane, written)
            except StopError:
                log.exception("maintenance_stopped lane=%d", lane.lane)
                return
            except HoldfastError as error:
                log.warning("maintenance_failed lane=%d error=%s", lane.lane, error)
            except Exception:
                log.exception("maintenance_failed lane=%d", lane.lane)

    def _retain(self, lane: DataLane) -> None:
        """Move log start offsets by the topics' settings, and forget producers that are long idle.

        Called only while all settings are durable: records that they delete do not come back if a
        crash brings the old settings back.
        """
        now_ms = self._broker.environment.now_ms()
        for partition_log in list(lane.state.partitions.values()):
            topic = self._broker.state.usable(partition_log.partition.topic_id)
            if topic is None or not lane.is_open:
                continue
            if lane.is_offline(partition_log.partition):
                continue  # the records on its disk are not counted yet
            rules = self._broker.settings_of(topic).retention
            fact = decide_retention(partition_log, rules, now_ms)
            if fact is not None:
                lane.add(fact)
                log.info(
                    "retention_applied partition=%s log_start_offset=%d",
                    fact.partition,
                    fact.offset,
                )
        before_ms = now_ms - self._broker.settings.producer_id_expiration_ms
        stale = any(
            partition_log.expired_producers(before_ms)
            for partition_log in lane.state.partitions.values()
        )
        if stale and lane.is_open:
            lane.add(ProducersExpired(before_ms))

    async def _expire_offsets(self, lane: DataLane) -> None:
        await self._in_turns(lane, self._broker.groups[lane.lane].coordinator.expire_offsets())

    async def _in_turns(self, lane: DataLane, slices: Iterator[int]) -> int | None:
        """Remove offsets by slices of groups. Return how many, or None if the lane was lost.

        Requests are served in between. A slice that removed something is durable before the next
        one, so no entry holds more than one slice.
        """
        groups = self._broker.groups[lane.lane]
        removed = 0
        while groups.problem() is None:
            found = next(slices, None)
            if found is None:
                return removed
            removed += found
            if found:
                await lane.flush()
            else:
                await asyncio.sleep(0)
        return None

    async def _clear_deleted(self, lane: DataLane) -> None:
        """Remove the partitions and the committed offsets that a lane holds of deleted topics.

        If nothing was left, remember how far the control lane was known when this began. Topics
        that are merely unknown do not count as deleted: this broker may have missed their creation.
        """
        view = self._broker.view
        if view.barrier() is not None:
            return  # a deletion that is not durable yet could still be undone by a crash
        number, deleted = view.number, frozenset(view.state.deleted)
        is_clear = True
        if deleted:
            is_clear = self._remove_partitions(lane, deleted)
            coordinator = self._broker.groups[lane.lane].coordinator
            removed = await self._in_turns(lane, coordinator.remove_offsets_of(deleted))
            is_clear = is_clear and removed == 0
            await lane.flush()  # removals of an earlier round are durable, too
        if is_clear and self._broker.lanes.get(lane.lane) is lane:
            self._broker.cleared[lane.lane] = number

    def _remove_partitions(self, lane: DataLane, deleted: Collection[UUID]) -> bool:
        """Remove a lane's partitions of deleted topics.

        Return True if there was none, and no objects are left of those that were removed earlier.
        """
        found = [each for each in lane.state.partitions if each.topic_id in deleted]
        for partition in found:
            if lane.is_open:
                lane.add(PartitionRemoved(partition))
        return not found and all(each.topic_id not in deleted for each in lane.state.removed)

    async def _purge_topics(self) -> None:
        """Forget a deleted topic when no lane, on any broker, has anything of it left."""
        deleted_by: dict[UUID, int] = {}
        while not self._broker.lost.done():
            await asyncio.sleep(self._broker.settings.maintenance_interval_s)
            # A broker that no longer knows the topics must stop serving them: notice if another one
            # owns the control lane, even if that one writes nothing to it.
            await self._broker.view.look_if_possible()
            lane = self._broker.view.lane
            if lane is None or not self._broker.is_controller or lane.barrier() is not None:
                continue
            number = self._broker.view.number
            deleted = self._broker.state.deleted
            deleted_by = {topic: deleted_by.get(topic, number) for topic in deleted}
            cleared = self._broker.cleared_number()
            for topic_id, known_at in deleted_by.items():
                if lane.is_open and cleared >= known_at:
                    lane.add(TopicPurged(topic_id))
