"""The violations that checkers report.

Pure. Owns the names of the anomalies; each checker reports only its own.
"""

import enum
from typing import NamedTuple


class Anomaly(enum.Enum):
    """The names of the anomalies, one for each way in which a log can break its promise."""

    LOST_WRITE = "lost write"
    TWO_VALUES = "two values at one offset"
    PHANTOM = "phantom"
    DOUBLED = "doubled"
    ACK_MOVED = "one batch acked at two offsets"
    WATERMARK_BACK = "watermark went back"
    LOG_START_BACK = "log start went back"
    LOG_START_UNASKED = "log start moved without being asked"
    HIDDEN = "acked but not visible"
    ABOVE_WATERMARK = "record served above the watermark"
    GAP = "gap"
    ORDER = "out of order"
    DEFINITE_ERROR_APPEARS = "definite error, yet it appears"
    SEQUENCE_REFUSED = "spurious sequence error"
    GAP_CALLED = "called out of order before a gap that closed"
    ACK_NOT_DURABLE = "ack without a lane object"
    FENCED_ACK = "fenced writer acked"
    READ_NOT_DURABLE = "served before it was durable"
    LANE_HOLE = "hole in the lane"
    CLAIM_BACK = "claim went back"
    CHAIN_BROKEN = "hash chain broken"
    ANSWER_WITHOUT_CLAIM = "answered for a lane that was never claimed"
    ANSWER_AFTER_RELEASE = "answered for a lane that was released"
    STALE_ANSWER = "answered under a claim that was out of date"
    SERVED_TOO_EARLY = "answered before the owner before was out of date"
    OWNERS_OVERLAP = "two brokers answered for one lane"
    NOT_OWNER_COMMIT = "commit by a member that does not own the partition"
    OWNER_REFUSED = "commit refused though nobody else owns the partition"
    OWNERSHIP_OVERLAP = "one partition, two owners"
    TOLD_ANOTHERS = "told to own a partition that is another member's"
    ASSIGNMENT_NOT_DURABLE = "assignment told before it was durable"
    COMMIT_NOT_DURABLE = "commit acked before it was durable"
    OFFSET_NOT_DURABLE = "committed offset told before it was durable"
    COMMITTED_BACK = "committed offset went back"
    ABORTED_READ = "aborted record read as committed"
    TORN_TRANSACTION = "transaction committed in part"
    COMMITTED_LOST = "committed transaction lost"
    ZOMBIE = "fenced producer wrote"
    STABLE_BACK = "last stable offset went back"
    STABLE_STUCK = "last stable offset stuck"
    OUTPUT_DOUBLED = "output doubled"
    OUTPUT_LOST = "output lost"
    CRASH = "process found itself in an impossible state"


class Violation(NamedTuple):
    """A broken promise, in words with numbers, and the events that show it."""

    kind: Anomaly
    message: str
    events: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.message} (events {', '.join(map(str, self.events))})"
