"""The checkers raise nothing on histories of a tiny log that is right by construction."""

from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.verify.checkers import check
from holdfast.verify.history import (
    Append,
    Call,
    ColdLog,
    Deleted,
    DeleteRecords,
    Fetch,
    Fetched,
    History,
    LandedKind,
    Listed,
    ListOffsets,
    Produce,
    Produced,
    Recorder,
    Which,
)

PARTITIONS = ("orders/0", "orders/1")


@dataclass
class Model:
    """One copy of each log; every call takes effect at one instant between its two events."""

    recorder: Recorder = field(default_factory=Recorder)
    logs: dict[str, list[int]] = field(default_factory=lambda: {p: [] for p in PARTITIONS})
    starts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PARTITIONS, 0))
    landed: dict[tuple[str, int, int], int] = field(default_factory=dict)
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)
    unsure: dict[tuple[str, int], Produce] = field(default_factory=dict)
    number: int = 0
    claim: int = 0
    value: int = 0

    def land(self, *appends: Append, kind: LandedKind = LandedKind.DATA) -> None:
        if kind is LandedKind.CLAIM:
            self.claim = self.number
        self.recorder.landed(
            lane=1,
            number=self.number,
            kind=kind,
            claim=self.claim,
            writer=f"w{self.claim}",
            previous=f"h{self.number - 1}",
            digest=f"h{self.number}",
            appends=appends,
        )
        self.number += 1

    def append(self, produce: Produce) -> int:
        key = (produce.partition, produce.producer_id, produce.base_sequence)
        if produce.producer_id >= 0 and key in self.landed:
            return self.landed[key]
        log = self.logs[produce.partition]
        base = len(log)
        log.extend(produce.values)
        self.landed[key] = base
        self.land(Append(produce.partition, base, produce.values))
        return base

    def next_produce(self, partition: str, producer: int, count: int) -> Produce:
        """The batch in doubt once more, or a new one."""
        if (partition, producer) in self.unsure:
            return self.unsure[partition, producer]
        values = tuple(range(self.value, self.value + count))
        self.value += count
        if producer < 0:
            return Produce(partition, values)
        sequence = self.sequences.get((partition, producer), 0)
        self.sequences[partition, producer] = sequence + count
        return Produce(partition, values, producer, 0, sequence)


Step = tuple[str, int, int, int, str]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["produce", "fetch", "latest", "earliest", "delete", "claim"]),
        st.integers(0, 1),
        st.integers(-1, 2),
        st.integers(0, 9),
        st.sampled_from(["ok", "ok", "ok", "lost before", "lost after", "late", "fail"]),
    ),
    max_size=40,
)


def run(steps: list[Step]) -> History:
    model = Model()
    model.land(kind=LandedKind.CLAIM)
    late: list[tuple[Call, Produced | Fetched | Listed | Deleted]] = []
    for number, (what, which, producer, amount, fate) in enumerate(steps):
        partition = PARTITIONS[which]
        if number % 3 == 0 and late:
            model.recorder.ok(*late.pop(0), 0.0)
        if what == "claim":
            model.land(kind=LandedKind.CLAIM)
        elif what == "produce":
            produce(model, partition, producer, 1 + amount % 3, fate, late)
        else:
            query(model, what, partition, amount, fate, late)
    for partition in PARTITIONS:
        log, start = model.logs[partition], model.starts[partition]
        records = tuple(enumerate(log))[start:]
        model.recorder.history.cold[partition] = ColdLog(records, start, len(log))
    return model.recorder.history


def produce(model: Model, partition: str, producer: int, count: int, fate: str, late: list) -> None:
    request = model.next_produce(partition, producer, count)
    call = model.recorder.invoke(f"p{producer}", "b1", request, 0.0)
    if fate == "fail" and (partition, producer) not in model.unsure:
        model.recorder.fail(call, "INVALID_RECORD", 0.0)
        if producer >= 0:
            model.sequences[partition, producer] = request.base_sequence
        return
    base = -1 if fate in ("lost before", "fail") else model.append(request)
    if fate in ("lost before", "lost after", "fail"):
        model.recorder.info(call, "REQUEST_TIMED_OUT", 0.0)
        if producer >= 0:
            model.unsure[partition, producer] = request
    else:
        model.unsure.pop((partition, producer), None)
        if fate == "late":
            late.append((call, Produced(base)))
        else:
            model.recorder.ok(call, Produced(base), 0.0)


def query(model: Model, what: str, partition: str, amount: int, fate: str, late: list) -> None:
    log, start = model.logs[partition], model.starts[partition]
    position = min(amount, len(log))
    operation = {
        "fetch": Fetch(partition, position),
        "latest": ListOffsets(partition, Which.LATEST),
        "earliest": ListOffsets(partition, Which.EARLIEST),
        "delete": DeleteRecords(partition, position),
    }[what]
    call = model.recorder.invoke("c", "b2", operation, 0.0)
    if what == "fetch" and position < start:
        model.recorder.fail(call, "OFFSET_OUT_OF_RANGE", 0.0)
        return
    if what == "delete":
        model.starts[partition] = max(start, position)
    result = {
        "fetch": Fetched(tuple(enumerate(log))[position : position + 4], len(log), start),
        "latest": Listed(len(log)),
        "earliest": Listed(start),
        "delete": Deleted(model.starts[partition]),
    }[what]
    if fate == "late":
        late.append((call, result))
    elif fate == "ok":
        model.recorder.ok(call, result, 0.0)
    else:
        model.recorder.info(call, "REQUEST_TIMED_OUT", 0.0)


@settings(max_examples=300, deadline=None)
@example([("produce", 0, 0, 0, fate) for fate in ("ok", "fail", "ok")])
@given(STEPS)
def test_nothing_is_raised_on_a_correct_log(steps: list[Step]):
    assert check(run(steps)) == []


@settings(max_examples=100, deadline=None)
@given(STEPS)
def test_a_record_taken_away_from_a_correct_log_is_noticed(steps: list[Step]):
    history = run(steps)
    acked = {
        (call.operation.partition, call.result.base_offset)
        for call in history.calls
        if isinstance(call.operation, Produce) and isinstance(call.result, Produced)
    }
    for partition, cold in history.cold.items():
        kept = cold.records[:-1]
        if cold.records and (partition, cold.records[-1][0]) in acked:
            history.cold[partition] = ColdLog(kept, cold.log_start, cold.end)
            assert check(history)
