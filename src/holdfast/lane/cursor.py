"""A position in a lane, and the rules that the next object must satisfy.

Pure. Owns the lane's invariants: numbers are dense, the hash chain is unbroken, only a claim
changes the writer. The live path, recovery and inspection use the same rules.
"""

import dataclasses

from holdfast.errors import CorruptObject
from holdfast.identifiers import LaneId, LaneNumber, LeaderEpoch, WriterId
from holdfast.lane.entry import CHAIN_START, EntryHeader, EntryKind
from holdfast.lane.keys import entry_key


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """A position in a lane, with everything that the next object is checked against."""

    lane: LaneId
    next_number: LaneNumber
    hash: bytes
    claim: LaneNumber
    writer: WriterId | None
    leader_epoch: LeaderEpoch
    """The number of claims before `claim`: Kafka's leader epoch of all partitions of the lane."""
    released: bool

    @staticmethod
    def at_start_of(lane: LaneId) -> "Cursor":
        """Return the position before the first object."""
        return Cursor(
            lane=lane,
            next_number=LaneNumber(0),
            hash=CHAIN_START,
            claim=LaneNumber(0),
            writer=None,
            leader_epoch=LeaderEpoch(-1),
            released=False,
        )

    def advance(self, header: EntryHeader) -> "Cursor":
        """Return the position after `header`; raise CorruptObject if it breaks a rule."""
        key = entry_key(self.lane, self.next_number)
        if header.lane != self.lane or header.number != self.next_number:
            raise CorruptObject(
                f"{key}: its header says number {header.number} of lane {header.lane}"
            )
        if header.previous != self.hash:
            raise CorruptObject(
                f"{key}: it follows an object with hash {header.previous.hex()}, but the object"
                f" before it has hash {self.hash.hex()}"
            )
        if header.kind is EntryKind.CLAIM:
            if header.claim != header.number:
                raise CorruptObject(
                    f"{key}: it is a claim, but its header names claim {header.claim}"
                )
            return dataclasses.replace(
                self,
                next_number=LaneNumber(header.number + 1),
                hash=header.hash,
                claim=header.number,
                writer=header.writer,
                leader_epoch=LeaderEpoch(self.leader_epoch + 1),
                released=False,
            )
        if header.writer != self.writer or header.claim != self.claim or self.released:
            raise CorruptObject(
                f"{key}: it was written under claim {header.claim} (writer {header.writer.hex()}),"
                f" but claim {self.claim} {'was released' if self.released else 'owns the lane'}"
            )
        return dataclasses.replace(
            self,
            next_number=LaneNumber(header.number + 1),
            hash=header.hash,
            released=header.kind is EntryKind.RELEASE,
        )
