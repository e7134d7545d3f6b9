"""Bugs that the simulation must find: each replaces one method or one answer of the real code.

No production code knows of them. A bug is a BrokerProcess whose broker, lanes or store are subtly
wrong; PLANTED names them all, for the tests and for `--planted`.
"""

from collections.abc import Callable, Sequence
from typing import Any

from simulation.broker_process import BrokerProcess
from tests.simulation.planted_clusters import CLUSTERS, WRONG_ABOUT_WHO
from tests.simulation.planted_coordinators import COORDINATORS
from tests.simulation.planted_disks import DISKS, HARMLESS_DISKS, SHARED_DISKS

from holdfast.broker.broker import Broker
from holdfast.broker.lanes.claiming import Claimer
from holdfast.errors import StoreUnavailable
from holdfast.identifiers import CONTROL_LANE, PartitionId
from holdfast.lane.effects import Stored
from holdfast.lane.keys import entry_key
from holdfast.lane.snapshots import Snapshots
from holdfast.log.data_lane import DataLane
from holdfast.log.facts import Appended, LogStartMoved, Rewritten
from holdfast.log.partition import PartitionLog
from holdfast.log.read_plan import batches_of
from holdfast.log.reader import LogReader
from holdfast.log.state import LogState, segment_key
from holdfast.store.interface import Buffers, CreateAnswer


class HookedLanes(dict):
    """A broker's lanes; each that it opens passes through a saboteur."""

    def __init__(self, sabotage: Callable[[DataLane], None]) -> None:
        super().__init__()
        self._sabotage = sabotage

    def __setitem__(self, key: Any, lane: DataLane) -> None:
        self._sabotage(lane)
        super().__setitem__(key, lane)


def lanes(sabotage: Callable[[DataLane], None]) -> type[BrokerProcess]:
    """A process whose data lanes are sabotaged as they are opened."""

    class Process(BrokerProcess):
        def make_broker(self) -> Broker:
            broker = super().make_broker()
            broker.served.lanes = HookedLanes(sabotage)
            return broker

    return Process


def data_lane(bad: type[DataLane]) -> type[BrokerProcess]:
    def sabotage(lane: DataLane) -> None:
        lane.__class__ = bad

    return lanes(sabotage)


def state(bad: type[LogState]) -> type[BrokerProcess]:
    def sabotage(lane: DataLane) -> None:
        lane.state.__class__ = bad

    return lanes(sabotage)


def claimer(bad: type[Claimer]) -> type[BrokerProcess]:
    class Process(BrokerProcess):
        def make_broker(self) -> Broker:
            broker = super().make_broker()
            broker._claimer.__class__ = bad
            return broker

    return Process


def store(wrap: Callable[[Any], Any]) -> type[BrokerProcess]:
    class Process(BrokerProcess):
        def __init__(self, **parts: Any) -> None:
            super().__init__(**parts)
            self.store = wrap(self.store)

    return Process


class Wrapped:
    """A store that does what the one inside does."""

    def __init__(self, inside: Any) -> None:
        self.inside = inside

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inside, name)


# Acknowledgement.


class AcksBeforePut(DataLane):
    def barrier(self, *, by_journal=False):
        return super().barrier(by_journal=True) if by_journal else None


class FencedWriterAcks(DataLane):
    def _fail(self, error):
        for group in (self._pending.in_flight, *self._pending._waiting):
            if group is not None and not group.done.done():
                group.done.set_result(None)
        super()._fail(error)


class ForeignExistsIsOurs(Wrapped):
    async def create(self, key: str, body: Buffers) -> CreateAnswer:
        answer = await self.inside.create(key, body)
        if key.startswith("lanes/") and answer is CreateAnswer.EXISTS:
            return CreateAnswer.CREATED
        return answer


class UnknownIsSuccess(Wrapped):
    """A put that timed out is taken for done, and the next number is used."""

    async def create(self, key: str, body: Buffers) -> CreateAnswer:
        try:
            return await self.inside.create(key, body)
        except StoreUnavailable:
            return CreateAnswer.CREATED


class OffsetsNotStamped(DataLane):
    def add(self, fact, payload=None):
        if payload is not None:
            payload[:8] = bytes(8)
        super().add(fact, payload)


# Hand-off.


class NeverValidates(DataLane):
    def is_valid(self) -> bool:
        return self.failure is None and not self._released


class DoesNotWaitForTheOwner(Claimer):
    async def wait_out(self, lane):
        return None


class ForgetsProducers(Claimer):
    async def claim(self, lane, kind):
        claimed = await super().claim(lane, kind)
        if lane != CONTROL_LANE:
            for log in claimed.state.partitions.values():
                log.producers.clear()
        return claimed


class ForgetsTheLastObject(Claimer):
    async def claim(self, lane, kind):
        claimed = await super().claim(lane, kind)
        if lane != CONTROL_LANE:
            for log in claimed.state.partitions.values():
                forget_last_run(log)
        return claimed


def forget_last_run(log: PartitionLog) -> None:
    if len(log.runs):
        last = log.runs.get(len(log.runs) - 1)
        for column in log.runs.columns():
            column.pop()
        log.log_end_offset = log.high_watermark = last.base_offset


class NoMemory(dict):
    def get(self, key, default=None):
        return default


class TakesRetriesForNew(LogState):
    def log_of(self, partition: PartitionId) -> PartitionLog:
        log = super().log_of(partition)
        if not isinstance(log.producers, NoMemory):
            log.producers = NoMemory(log.producers)
        return log


# What is served before it is durable.


class WatermarkRunsAhead(LogState):
    def apply(self, fact) -> None:
        super().apply(fact)
        if isinstance(fact, Appended):
            self.log_of(fact.partition).high_watermark = fact.last_offset + 1


class LogStartRunsAhead(LogState):
    def apply(self, fact) -> None:
        super().apply(fact)
        if isinstance(fact, LogStartMoved):
            self.log_of(fact.partition).log_start_offset = fact.offset


# Snapshots, segments, collection.


class LateSnapshots(Snapshots):
    def count_entry(self) -> bool:
        super().count_entry()
        return False


class TakesSnapshotsLate(DataLane):
    """The state is taken when the object is durable, and by then it holds later facts."""

    def consume(self, effect) -> None:
        super().consume(effect)
        late = self._snapshots
        is_due = late._entries_since >= late._every
        if isinstance(effect, Stored) and is_due and not late.is_under_way:
            late.take(self.cursor, self.state.encode())
            late.count_again()
            self.spawn(late.write())


def snapshot_ahead_of_its_number(lane: DataLane) -> None:
    lane.__class__ = TakesSnapshotsLate
    lane._snapshots.__class__ = LateSnapshots


class SegmentCutShort(Wrapped):
    async def create(self, key: str, body: Buffers) -> CreateAnswer:
        whole = b"".join(body)
        return await self.inside.create(key, [whole[:-20] if key.startswith("topics/") else whole])


class DeletesWithoutSnapshotOrFloor(DataLane):
    async def drop_up_to(self, number: int, keep: Sequence[int]) -> int:
        numbers = [n for n in range(number + 1) if n not in set(keep)]
        await self.store.delete([entry_key(self.lane, n) for n in numbers])
        return len(numbers)


class CollectsWhatIsNamed(LogState):
    def publish(self, facts) -> None:
        super().publish(facts)
        for fact in facts:
            if isinstance(fact, Rewritten):
                for part in fact.partitions:
                    keys = [segment_key(part.partition, s.name) for s in part.segments]
                    self.collectable.extend(keys)


class LoadLosesTheLastBatch(LogReader):
    """What is loaded to be rewritten or served lacks its last batch, where it has several."""

    async def load_run(self, log, run):
        batches = list(batches_of(await super().load_run(log, run)))
        return batches[:-1] if len(batches) > 1 else batches


def bad_reader(lane: DataLane) -> None:
    lane.reader.__class__ = LoadLosesTheLastBatch


class SweepsClaims(DataLane):
    async def sweep(self, keep, *, up_to):
        del keep
        return await super().sweep((), up_to=up_to)


RECORDS: dict[str, type[BrokerProcess]] = {
    "ack-before-put": data_lane(AcksBeforePut),
    "fenced-writer-acks": data_lane(FencedWriterAcks),
    "foreign-exists-is-ours": store(ForeignExistsIsOurs),
    "unknown-is-success": store(UnknownIsSuccess),
    "offsets-not-stamped": data_lane(OffsetsNotStamped),
    "never-validates": data_lane(NeverValidates),
    "does-not-wait-for-the-owner": claimer(DoesNotWaitForTheOwner),
    "forgets-producers": claimer(ForgetsProducers),
    "forgets-the-last-object": claimer(ForgetsTheLastObject),
    "takes-retries-for-new": state(TakesRetriesForNew),
    "watermark-runs-ahead": state(WatermarkRunsAhead),
    "log-start-runs-ahead": state(LogStartRunsAhead),
    "snapshot-ahead-of-its-number": lanes(snapshot_ahead_of_its_number),
    "segment-cut-short": store(SegmentCutShort),
    "deletes-without-snapshot-or-floor": data_lane(DeletesWithoutSnapshotOrFloor),
    "collects-what-is-named": state(CollectsWhatIsNamed),
    "load-loses-the-last-batch": lanes(bad_reader),
    "sweeps-claims": data_lane(SweepsClaims),
}
PLANTED = RECORDS | COORDINATORS | DISKS | CLUSTERS | SHARED_DISKS
"""What breaks a promise."""
HARMLESS = WRONG_ABOUT_WHO | HARMLESS_DISKS

__all__ = ["HARMLESS", "PLANTED"]
