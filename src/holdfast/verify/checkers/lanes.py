"""Checks what the store holds: the sequence of each lane, and that answers were durable.

Pure. The first object that is stored at a number belongs to the lane. An object that is stored
there again, after a deletion, must never count. One function for each anomaly.
"""

import bisect

from holdfast.verify.checkers.knowledge import Knowledge
from holdfast.verify.checkers.violation import Anomaly, Violation
from holdfast.verify.history import Fetched, History, LandedKind, Partition, StoredEntry, Value


def chains(history: History) -> dict[int, dict[int, StoredEntry]]:
    """Return the first object at each number of each lane, in the order in which they were
    stored."""
    chains: dict[int, dict[int, StoredEntry]] = {}
    for landing in history.landings:
        chains.setdefault(landing.lane, {}).setdefault(landing.number, landing)
    return chains


def lane_hole(knowledge: Knowledge) -> list[Violation]:
    """Find objects that were stored before the one at the number below."""
    found: list[Violation] = []
    for lane, chain in chains(knowledge.history).items():
        for number, landing in chain.items():
            below = chain.get(number - 1)
            if number > 0 and (below is None or below.sequence > landing.sequence):
                found.append(
                    Violation(
                        Anomaly.LANE_HOLE,
                        f"lane {lane}: number {number} landed while {number - 1} was not there",
                        (landing.sequence,),
                    )
                )
    return found


def chain_broken(knowledge: Knowledge) -> list[Violation]:
    """Find objects that do not name the hash of the one before them."""
    found: list[Violation] = []
    for lane, chain in chains(knowledge.history).items():
        for number, landing in chain.items():
            below = chain.get(number - 1)
            if below is not None and landing.previous != below.hash:
                found.append(
                    Violation(
                        Anomaly.CHAIN_BROKEN,
                        f"lane {lane}: number {number} names {landing.previous} before it, but "
                        f"{number - 1} is {below.hash}",
                        (below.sequence, landing.sequence),
                    )
                )
    return found


def claim_back(knowledge: Knowledge) -> list[Violation]:
    """Find objects written under another claim than the newest one below, or after its release."""
    found: list[Violation] = []
    for lane, chain in chains(knowledge.history).items():
        owner: StoredEntry | None = None
        for number in sorted(chain):
            landing = chain[number]
            if landing.kind is LandedKind.CLAIM:
                if landing.claim != number:
                    found.append(_wrong_claim(lane, landing, owner))
                owner = landing
                continue
            if owner is None or (landing.claim, landing.writer) != (owner.claim, owner.writer):
                found.append(_wrong_claim(lane, landing, owner))
            if landing.kind is LandedKind.RELEASE:
                owner = None
    return found


def _wrong_claim(lane: int, landing: StoredEntry, owner: StoredEntry | None) -> Violation:
    held = f"{owner.claim} of {owner.writer}" if owner else "nobody's"
    return Violation(
        Anomaly.CLAIM_BACK,
        f"lane {lane}: number {landing.number} was written under claim {landing.claim} of "
        f"{landing.writer}, while the lane was {held}",
        (landing.sequence,),
    )


class _Durable:
    """The records in lane objects and on disks, and the events from which on they were there.

    On a disk an offset may have had several values: a fenced writer may not know that it is fenced.
    """

    def __init__(self, history: History) -> None:
        self.records: dict[tuple[Partition, int], tuple[Value, StoredEntry]] = {}
        self.on_disk: dict[tuple[Partition, int, Value], int] = {}
        ends: dict[Partition, list[tuple[int, int]]] = {}
        for chain in chains(history).values():
            for landing in chain.values():
                for append in landing.appends:
                    for index, value in enumerate(append.values):
                        self.records.setdefault(
                            (append.partition, append.base_offset + index), (value, landing)
                        )
                    end = append.base_offset + len(append.values)
                    ends.setdefault(append.partition, []).append((landing.sequence, end))
                for hole in landing.given_up:
                    end = hole.last_offset + 1
                    ends.setdefault(hole.partition, []).append((landing.sequence, end))
        for frame in history.frames:
            for append in frame.appends:
                for index, value in enumerate(append.values):
                    key = (append.partition, append.base_offset + index, value)
                    self.on_disk.setdefault(key, frame.sequence)
                end = append.base_offset + len(append.values)
                ends.setdefault(append.partition, []).append((frame.sequence, end))
        self._ends = {partition: sorted(entries) for partition, entries in ends.items()}

    def has(self, partition: Partition, offset: int, value: Value, event: int) -> bool:
        """True if a record was in a lane object, or on a disk, before an event."""
        held, landing = self.records.get((partition, offset), (None, None))
        if held == value and landing is not None and landing.sequence < event:
            return True
        spooled = self.on_disk.get((partition, offset, value))
        return spooled is not None and spooled < event

    def end_before(self, partition: Partition, event: int) -> int:
        entries = self._ends.get(partition, [])
        return max(
            (end for _, end in entries[: bisect.bisect_left(entries, (event, 0))]), default=0
        )


def ack_not_durable(knowledge: Knowledge) -> list[Violation]:
    """Find acks that were given before the record was in a lane object or on a disk."""
    if not knowledge.history.landings:
        return []
    durable = _Durable(knowledge.history)
    found: list[Violation] = []
    for partition, known in knowledge.partitions.items():
        for batch in known.batches:
            for call, produce, produced in batch.acks:
                for index, value in enumerate(produce.values):
                    offset = produced.base_offset + index
                    held, landing = durable.records.get((partition, offset), (None, None))
                    if durable.has(partition, offset, value, call.completed):
                        continue
                    by = f"claim {landing.claim} of {landing.writer}" if landing else "nobody"
                    fenced = landing is not None and held != value
                    found.append(
                        Violation(
                            Anomaly.FENCED_ACK if fenced else Anomaly.ACK_NOT_DURABLE,
                            f"{partition}: {call.broker} acked value {value} at offset {offset}; "
                            f"what the lane has there is {held}, by {by}",
                            (call.invoked, call.completed),
                        )
                    )
                    break
    return found


def read_not_durable(knowledge: Knowledge) -> list[Violation]:
    """Find records and high watermarks served before a lane object or a disk had the records."""
    if not knowledge.history.landings:
        return []
    durable = _Durable(knowledge.history)
    found: list[Violation] = []
    for partition, known in knowledge.partitions.items():
        for call in known.queries:
            if not isinstance(call.result, Fetched):
                continue
            end = durable.end_before(partition, call.completed)
            early = [
                offset
                for offset, value in call.result.records
                if not durable.has(partition, offset, value, call.completed)
            ]
            if early or call.result.high_watermark > end:
                found.append(
                    Violation(
                        Anomaly.READ_NOT_DURABLE,
                        f"{partition}: {call.broker} served the offsets {early} and a high "
                        f"watermark of {call.result.high_watermark}; the lane went up to {end}",
                        (call.invoked, call.completed),
                    )
                )
    return found
