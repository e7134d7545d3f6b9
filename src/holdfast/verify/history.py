"""The history of a run: calls, answers and stored objects in one order, for the checkers.

Pure. Owns the vocabulary of histories. An answer is ok, fail (it definitely did not happen) or info
(unknown); a call that was never answered is info. Must never import what is being checked: values
are plain numbers and names, so that a history can be written by hand or come from any cluster.
"""

import enum
import hashlib
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from holdfast.verify.vocabulary import (
    NO_TRANSACTION,
    CoordinatorOperation,
    CoordinatorResult,
    Decision,
    Fact,
    Partition,
    Value,
)

READ_COMMITTED = 1
"""The isolation level of a fetch that wants committed records only."""


class Produce(Fact, frozen=True):
    partition: Partition
    values: tuple[Value, ...]
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    transactional_id: str = ""
    transaction: int = NO_TRANSACTION
    """The identity of the transaction that the records are part of."""


class Produced(Fact, frozen=True):
    base_offset: int
    log_start: int = -1
    """The log start offset; -1 if the answer did not name it."""


class Fetch(Fact, frozen=True):
    partition: Partition
    offset: int
    isolation: int = 0


class Fetched(Fact, frozen=True):
    records: tuple[tuple[int, Value], ...]
    """The records as (offset, value). If committed records were asked for, without those that the
    answer names as aborted."""
    high_watermark: int
    """The high watermark; -1 if the broker could not prove its claim."""
    log_start: int = -1
    next_offset: int = -1
    """The offset at which the answer ends, after markers and aborted records; -1 if unknown."""
    stable: int = -1
    """The last stable offset; -1 if the broker could not prove its claim, or if it is unknown."""


class Which(enum.Enum):
    EARLIEST = "earliest"
    LATEST = "latest"


class ListOffsets(Fact, frozen=True):
    partition: Partition
    which: Which
    isolation: int = 0


class Listed(Fact, frozen=True):
    offset: int


class DeleteRecords(Fact, frozen=True):
    partition: Partition
    before: int


class Deleted(Fact, frozen=True):
    log_start: int


class CreateTopic(Fact, frozen=True):
    topic: str
    partitions: int


class DeleteTopic(Fact, frozen=True):
    topic: str


class AlterTopic(Fact, frozen=True):
    topic: str
    ack: str
    """The value of `holdfast.ack`: `disk` or `store`."""


class Done(Fact, frozen=True):
    """The result of an operation that returns nothing."""


Operation = (
    Produce
    | Fetch
    | ListOffsets
    | DeleteRecords
    | CreateTopic
    | DeleteTopic
    | AlterTopic
    | CoordinatorOperation
)
Result = Produced | Fetched | Listed | Deleted | Done | CoordinatorResult


class Outcome(enum.Enum):
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Call(msgspec.Struct):
    """One operation from its invocation to its answer; only the Recorder changes it."""

    client: str
    broker: str
    operation: Operation
    invoked: int
    """The number of the event of the invocation, in the one order of all events."""
    invoked_at: float
    completed: int = -1
    """The number of the event of the answer; -1 if none ever came."""
    completed_at: float = -1.0
    outcome: Outcome = Outcome.INFO
    result: Result | None = None
    error: str = ""

    def __str__(self) -> str:
        answer = self.result if self.outcome is Outcome.OK else f"{self.outcome.value} {self.error}"
        return (
            f"[{self.invoked}..{self.completed}] {self.client} at {self.broker}: "
            f"{self.operation} -> {answer}"
        )


class MarkerKind(enum.Enum):
    CLAIM = "claim"
    RELEASE = "release"
    KILL = "kill"
    PAUSE = "pause"
    FAULT = "fault"
    START = "start"


class ProcessEvent(Fact, frozen=True):
    """An event that happened to a process or to the store, rather than a client's call."""

    sequence: int
    at: float
    kind: MarkerKind
    process: str
    detail: str = ""


class LandedKind(enum.Enum):
    CLAIM = "claim"
    DATA = "data"
    RELEASE = "release"


class Append(NamedTuple):
    """A record batch inside a lane object."""

    partition: Partition
    base_offset: int
    values: tuple[Value, ...]


class GivenUp(NamedTuple):
    """Offsets that a partition continues without: their records may be on a disk that is
    missing."""

    partition: Partition
    base_offset: int
    last_offset: int


class StoredEntry(Fact, frozen=True):
    """A lane object at the moment it was stored, recorded by the store and not by its writer."""

    sequence: int
    lane: int
    number: int
    kind: LandedKind
    claim: int
    writer: str
    previous: str
    hash: str
    appends: tuple[Append, ...] = ()
    decisions: tuple[Decision, ...] = ()
    given_up: tuple[GivenUp, ...] = ()
    at: float = -1.0
    process: str = ""
    """The process that put the claim; empty for other objects."""
    valid_s: float = -1.0
    """How long the owner may answer before it must prove its claim again; -1 unless a claim."""
    owed_s: float = 0.0
    """How long previous owners may still answer, as the claim says; 0 unless a claim."""


class SpooledFrame(Fact, frozen=True):
    """Record batches at the moment they were durable on a machine's disk, recorded by the disk."""

    sequence: int
    disk: str
    lane: int
    claim: int
    appends: tuple[Append, ...]


class ColdLog(Fact, frozen=True):
    """The log of a partition that a fresh reader with nothing but the store found at the very
    end."""

    records: tuple[tuple[int, Value], ...]
    log_start: int
    end: int
    """The offset that the next record would get."""


class PartitionRules(Fact, frozen=True):
    """The changes that a broker may make to a partition without a client's request."""

    retention: bool = False
    unclean: bool = False
    """True if the partition may continue without a disk that holds its newest records; it must name
    their offsets."""


NO_RULES = PartitionRules()


class History(msgspec.Struct):
    """Everything that was recorded of one run."""

    calls: list[Call] = []
    markers: list[ProcessEvent] = []
    landings: list[StoredEntry] = []
    cold: dict[Partition, ColdLog] = {}
    rules: dict[Partition, PartitionRules] = {}
    sources: dict[Value, tuple[Partition, int]] = {}
    """For each record that was made from another one: the partition and offset of that input."""
    is_settled: bool = False
    """True if every transaction had ended before the last read of committed records."""
    crashes: list[str] = []
    """Unhandled exceptions, logged errors, and invariants that broke inside a process."""
    frames: list[SpooledFrame] = []

    def rules_of(self, partition: Partition) -> PartitionRules:
        return self.rules.get(partition, NO_RULES)

    def events(self) -> Iterator[tuple[int, str]]:
        """Return all events in order, as text for people and for the digest."""
        lines: list[tuple[int, str]] = []
        for call in self.calls:
            lines.append((call.invoked, f"{call.client} {call.broker} invoke {call.operation}"))
            if call.completed >= 0:
                answer = f"{call.outcome.value} {call.result} {call.error}"
                lines.append((call.completed, f"{call.client} {call.broker} {answer}"))
        lines += [(m.sequence, f"{m.process} {m.kind.value} {m.detail}") for m in self.markers]
        lines += [(landing.sequence, str(landing)) for landing in self.landings]
        lines += [(frame.sequence, str(frame)) for frame in self.frames]
        return iter(sorted(lines))

    def digest(self) -> str:
        """Return a hash that two runs share only if they had the same events and the same cold
        read."""
        state = hashlib.sha256()
        for sequence, line in self.events():
            state.update(f"{sequence} {line}\n".encode())
        for partition, cold in sorted(self.cold.items()):
            state.update(f"{partition} {cold}\n".encode())
        return state.hexdigest()


class Recorder:
    """The writer of a history, which gives all events one sequence of numbers."""

    def __init__(self) -> None:
        self.history = History()
        self._sequence = 0

    def invoke(self, client: str, broker: str, operation: Operation, at: float) -> Call:
        call = Call(client, broker, operation, self._next(), at)
        self.history.calls.append(call)
        return call

    def ok(self, call: Call, result: Result, at: float) -> None:
        self._complete(call, Outcome.OK, at)
        call.result = result

    def fail(self, call: Call, error: str, at: float) -> None:
        """Complete a call whose answer says that it had no effect, and never will."""
        self._complete(call, Outcome.FAIL, at)
        call.error = error

    def info(self, call: Call, error: str, at: float) -> None:
        """Complete a call of which it is unknown whether it had an effect, or will have one."""
        self._complete(call, Outcome.INFO, at)
        call.error = error

    def mark(self, kind: MarkerKind, process: str, at: float, detail: str = "") -> None:
        self.history.markers.append(ProcessEvent(self._next(), at, kind, process, detail))

    def landed(
        self,
        *,
        lane: int,
        number: int,
        kind: LandedKind,
        claim: int,
        writer: str,
        previous: str,
        digest: str,
        appends: tuple[Append, ...] = (),
        decisions: tuple[Decision, ...] = (),
        given_up: tuple[GivenUp, ...] = (),
        at: float = -1.0,
        process: str = "",
        valid_s: float = -1.0,
        owed_s: float = 0.0,
    ) -> None:
        self.history.landings.append(
            StoredEntry(
                self._next(),
                lane,
                number,
                kind,
                claim,
                writer,
                previous,
                digest,
                appends,
                decisions,
                given_up,
                at,
                process,
                valid_s,
                owed_s,
            )
        )

    def spooled(self, *, disk: str, lane: int, claim: int, appends: tuple[Append, ...]) -> None:
        self.history.frames.append(SpooledFrame(self._next(), disk, lane, claim, appends))

    def _complete(self, call: Call, outcome: Outcome, at: float) -> None:
        call.completed = self._next()
        call.completed_at = at
        call.outcome = outcome

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence
