"""Bugs of acks from a local disk that the simulation must find: see planted.py."""

from collections import deque
from collections.abc import Callable

import msgspec
from simulation.broker_process import BrokerProcess

from holdfast.broker.broker import Broker
from holdfast.broker.lanes.disk_acks import DiskAcks
from holdfast.lane.journal_queue import JournalQueue
from holdfast.lane.lane import CLOSE_PATIENCE_S, Lane
from holdfast.lane.spool.spool import read_spool, spools_on
from holdfast.log.data_lane import DataLane
from holdfast.log.facts import CeilingReserved
from holdfast.log.spool_replay import batches_in
from holdfast.records.stamp import stamp


class HookedLanes(dict):
    def __init__(self, sabotage: Callable[[DataLane], None]) -> None:
        super().__init__()
        self._sabotage = sabotage

    def __setitem__(self, key, lane) -> None:
        self._sabotage(lane)
        super().__setitem__(key, lane)


def lanes(sabotage: Callable[[DataLane], None]) -> type[BrokerProcess]:
    class Process(BrokerProcess):
        def make_broker(self) -> Broker:
            broker = super().make_broker()
            broker.served.lanes = HookedLanes(sabotage)
            return broker

    return Process


def queue(bad: type[JournalQueue]) -> type[BrokerProcess]:
    def sabotage(lane: DataLane) -> None:
        if lane.queue is not None:
            lane.queue.__class__ = bad

    return lanes(sabotage)


def data_lane(bad: type[DataLane]) -> type[BrokerProcess]:
    def sabotage(lane: DataLane) -> None:
        lane.__class__ = bad

    return lanes(sabotage)


def disk_acks(bad: type[DiskAcks]) -> type[BrokerProcess]:
    class Process(BrokerProcess):
        def make_broker(self) -> Broker:
            broker = super().make_broker()
            broker.disk_acks.__class__ = bad
            return broker

    return Process


class AcksBeforeFsync(JournalQueue):
    async def _write(self, group):
        group.is_durable = True
        self._publish_ready()
        await super()._write(group)


class DropsBeforeTheStoreHasIt(JournalQueue):
    def take(self, bytes_max):
        taken = super().take(bytes_max)
        for group in taken:
            parts = self._parts.pop(group, None)
            if parts:
                for part in parts:
                    self.journal._disk.files.pop(part, None)
        return taken


class ReservesNoCeiling(DataLane):
    def _ceiling_of(self, log):
        return 1 << 60

    def _reserve(self, partition):
        return None


class StoreOvertakesDisk(DataLane):
    def _ends_journaling(self, fact):
        return False


class PublishesPastThePut(DataLane):
    """What follows a batch that is on its way to the store does not wait for it."""

    def append(self, fact, record_batch, *, to_disk, flush=None):
        if to_disk and self._why_not_by_disk(self.log_of(fact.partition), fact) is None:
            self._by_disk.add(fact.partition)
        return super().append(fact, record_batch, to_disk=to_disk, flush=flush)


class TakesAnyDiskForIt(DiskAcks):
    """Whatever this disk has is believed to be all that was acknowledged."""

    async def _look(self, lane):
        await super()._look(lane)
        lane.awaited.clear()


class GoesOnAtTheLogEnd(DiskAcks):
    """Where a partition may go on without a disk, it gives offsets out again."""

    async def _go_on(self, lane, partition):
        lane.awaited.pop(partition)


class ReplaysOutOfOrder(DiskAcks):
    async def _look(self, lane):
        if self.disk is not None and lane.awaited:
            for spool, parts in sorted((await spools_on(self.disk)).items()):
                wanted = {p for p, claim in lane.awaited.items() if claim == spool.claim}
                if spool.lane == lane.lane and wanted:
                    self._take_in(lane, await read_spool(self.disk, spool, parts), wanted)
            await lane.flush()
        await super()._look(lane)

    def _take_in(self, lane, found, wanted) -> None:
        stored = {p: lane.log_of(p).log_end_offset for p in wanted}
        for frame in reversed(found.frames):
            for fact, batch in batches_in(frame):
                if fact.partition in wanted and fact.base_offset >= stored[fact.partition]:
                    offset = lane.log_of(fact.partition).log_end_offset
                    last = offset + fact.last_offset - fact.base_offset
                    data = bytearray(batch)
                    stamp(data, base_offset=offset, leader_epoch=lane.leader_epoch)
                    moved = msgspec.structs.replace(fact, base_offset=offset, last_offset=last)
                    lane.add(moved, data)
        claim = lane.claimed_lane.cursor.claim
        for partition in sorted(wanted):
            end = lane.log_of(partition).log_end_offset
            lane.add(CeilingReserved(partition, end, claim))
            del lane.awaited[partition]


class HandsOverUnflushed(DataLane):
    """A release says that nothing is on the disk, and what is there stays there."""

    _is_giving = False

    def _ends_journaling(self, fact):
        return not self._is_giving and super()._ends_journaling(fact)

    async def prepare_to_leave(self, patience_s=0.0):
        return None

    async def close(self, *, release, patience_s=CLOSE_PATIENCE_S):
        queue = self.queue
        if not release or queue is None or not self.is_open:
            return await super().close(release=release, patience_s=patience_s)
        self._is_giving = True
        queue._unflushed = deque(group for group in queue._unflushed if group.is_taken)
        for partition in self._by_disk:
            stored = self.log_of(partition).sealed_end_offset
            claim = self.claimed_lane.cursor.claim
            self.add(CeilingReserved(partition, stored, claim))
        return await Lane.close(self, release=True, patience_s=patience_s)


class ForgetsAnothersDisk(DiskAcks):
    """Where another broker's disk has more, it goes on with what is in the store."""

    async def _look(self, lane):
        await super()._look(lane)
        if self.awaits.get(lane.lane, self.broker_id) != self.broker_id:
            lane.awaited.clear()


class TakesNoNotice(BrokerProcess):
    def make_broker(self) -> Broker:
        broker = super().make_broker()
        broker.disk_acks.__class__ = ForgetsAnothersDisk
        broker.disk_acks.broker_id = broker.settings.broker_id
        return broker


class SaysNotWhose(DiskAcks):
    """Nobody hears whose disk a lane waits for: it waits for longer."""

    async def _note_whose(self, lane):
        return None


SHARED_DISKS: dict[str, type[BrokerProcess]] = {
    "hands-over-unflushed": data_lane(HandsOverUnflushed),
    "forgets-anothers-disk": TakesNoNotice,
}
HARMLESS_DISKS: dict[str, type[BrokerProcess]] = {"says-not-whose-disk": disk_acks(SaysNotWhose)}
DISKS: dict[str, type[BrokerProcess]] = {
    "ack-before-fsync": queue(AcksBeforeFsync),
    "spool-dropped-before-the-put": queue(DropsBeforeTheStoreHasIt),
    "no-ceiling": data_lane(ReservesNoCeiling),
    "store-overtakes-disk": data_lane(StoreOvertakesDisk),
    "published-past-the-put": data_lane(PublishesPastThePut),
    "any-disk-will-do": disk_acks(TakesAnyDiskForIt),
    "goes-on-at-the-log-end": disk_acks(GoesOnAtTheLogEnd),
    "replayed-out-of-order": disk_acks(ReplaysOutOfOrder),
}
