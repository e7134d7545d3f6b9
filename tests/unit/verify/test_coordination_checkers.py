"""The checkers of groups and transactions on hand-written histories: anomaly and harmless twin."""

import pytest

from holdfast.verify.checkers import Anomaly, check
from holdfast.verify.history import (
    READ_COMMITTED,
    Append,
    Call,
    ColdLog,
    Done,
    Fetch,
    Fetched,
    LandedKind,
    Produce,
    Produced,
    Recorder,
)
from holdfast.verify.vocabulary import (
    Assigned,
    AssignmentLanded,
    CommitOffsets,
    ConsumerHeartbeat,
    Decision,
    EndTransaction,
    FetchOffsets,
    GenerationLanded,
    InitialisedProducer,
    InitProducer,
    JoinAnswer,
    JoinGroup,
    MemberGone,
    MemberOwns,
    MemberRenamed,
    OffsetsEnded,
    OffsetsLanded,
    OffsetsTaken,
    OffsetsTold,
    SyncGroup,
)

P = "orders/0"
Q = "orders/1"
G = "bills"


class Script(Recorder):
    """A history with one lane, told step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0
        self._land(LandedKind.CLAIM)

    def _land(self, kind: LandedKind, *decisions: Decision, appends: tuple = ()) -> None:
        self.landed(
            lane=1,
            number=self.number,
            kind=kind,
            claim=0,
            writer="w",
            previous=f"h{self.number - 1}" if self.number else "",
            digest=f"h{self.number}",
            appends=appends,
            decisions=decisions,
        )
        self.number += 1

    def decide(self, *decisions: Decision) -> None:
        self._land(LandedKind.DATA, *decisions)

    def commit(
        self, number: int, member: str, offset: int, generation: int = 1, transaction: int = -1
    ) -> Call:
        offsets = ((P, offset),)
        asked = CommitOffsets(G, member, generation, number, offsets, transaction=transaction)
        return self.invoke(member, "b1", asked, 0.0)

    def land_commit(self, number: int, offset: int, producer: tuple[int, int] = (-1, -1)) -> None:
        self.decide(OffsetsLanded(G, ((P, offset, number),), *producer))

    def committed(self, number: int, member: str, offset: int) -> None:
        call = self.commit(number, member, offset)
        self.land_commit(number, offset)
        self.ok(call, OffsetsTaken((P,)), 0.0)

    def told(self, offset: int, number: int) -> None:
        call = self.invoke("c", "b1", FetchOffsets(G, (P,)), 0.0)
        self.ok(call, OffsetsTold(((P, offset, number),)), 0.0)

    def write(
        self,
        partition: str,
        offset: int,
        value: int,
        transaction: int,
        *,
        p: tuple[int, int] = (7, 0),
        lands: bool = True,
    ) -> None:
        asked = Produce(partition, (value,), *p, offset, "id", transaction)
        call = self.invoke("t", "b1", asked, 0.0)
        if lands:
            self._land(LandedKind.DATA, appends=(Append(partition, offset, (value,)),))
            self.ok(call, Produced(offset), 0.0)
            cold = self.history.cold.get(partition, ColdLog((), 0, 0))
            self.history.cold[partition] = ColdLog((*cold.records, (offset, value)), 0, offset + 1)

    def end(self, transaction: int, *, committed: bool, p: tuple[int, int] = (7, 0)) -> None:
        call = self.invoke("t", "b1", EndTransaction("id", transaction, committed, *p), 0.0)
        self.ok(call, Done(), 0.0)

    def init(self, epoch: int) -> None:
        self.ok(self.invoke("t", "b1", InitProducer("id"), 0.0), InitialisedProducer(7, epoch), 0.0)

    def read(self, partition: str, end: int, *records: tuple[int, int]) -> None:
        """By a reader of committed records, from the start."""
        call = self.invoke("r", "b1", Fetch(partition, 0, READ_COMMITTED), 0.0)
        self.ok(call, Fetched(records, end, 0, end, end), 0.0)

    def kinds(self) -> set[Anomaly]:
        return {violation.kind for violation in check(self.history)}


def assigned(script: Script, owner: str, generation: int = 1) -> None:
    script.decide(GenerationLanded(G, generation, "a", ("a", "b")))
    script.decide(AssignmentLanded(G, generation, (("a", ()), ("b", ()), (owner, (P,)))))


@pytest.fixture
def script() -> Script:
    return Script()


def test_a_commit_by_another_than_the_owner_is_named_and_one_by_the_owner_is_not(script: Script):
    assigned(script, "a")
    script.committed(1, "a", 5)
    assert script.kinds() == set()
    script.committed(2, "b", 9)
    assert script.kinds() == {Anomaly.NOT_OWNER_COMMIT}


def test_anybody_may_commit_what_nobody_owns(script: Script):
    script.decide(GenerationLanded(G, 1, "a", ("a", "b")))
    script.committed(1, "b", 5)
    script.decide(MemberOwns(G, "a", 3, (P,), ()))
    script.decide(MemberGone(G, "a"))
    script.committed(2, "b", 6)
    assert script.kinds() == set()


def test_what_a_member_has_still_to_give_up_is_its_own(script: Script):
    script.decide(MemberOwns(G, "a", 3, (), (P,)))
    script.committed(1, "a", 5)
    assert script.kinds() == set()
    script.committed(2, "b", 6)
    assert script.kinds() == {Anomaly.NOT_OWNER_COMMIT}


def test_a_static_member_under_a_new_id_owns_what_the_old_one_did(script: Script):
    assigned(script, "a")
    script.decide(MemberRenamed(G, "a", "a2"))
    script.committed(1, "a2", 5)
    assert script.kinds() == set()
    script.committed(2, "a", 6)
    assert script.kinds() == {Anomaly.NOT_OWNER_COMMIT}


@pytest.mark.parametrize(("owner", "found"), [("a", set()), ("b", {Anomaly.OWNER_REFUSED})])
def test_a_refusal_needs_an_owner(script: Script, owner: str, found: set[Anomaly]):
    assigned(script, owner)
    call = script.commit(1, "b", 5)
    script.ok(call, OffsetsTaken((), (P,)), 0.0)
    assert script.kinds() == found


def test_a_refusal_before_the_assignment_of_the_other_is_durable_is_named(script: Script):
    call = script.commit(1, "b", 5)
    script.ok(call, OffsetsTaken((), (P,)), 0.0)
    assigned(script, "a")
    assert script.kinds() == {Anomaly.OWNER_REFUSED}


def test_two_owners_of_one_partition_are_named(script: Script):
    script.decide(MemberOwns(G, "a", 3, (P,), ()))
    script.decide(MemberOwns(G, "b", 3, (Q,), ()))
    assert script.kinds() == set()
    script.decide(MemberOwns(G, "b", 4, (P, Q), ()))
    assert script.kinds() == {Anomaly.OWNERSHIP_OVERLAP}


def test_a_generation_is_told_only_when_it_is_durable(script: Script):
    call = script.invoke("a", "b1", JoinGroup(G, "a"), 0.0)
    early = script.invoke("b", "b1", JoinGroup(G, "b"), 0.0)
    script.decide(GenerationLanded(G, 1, "a", ("a",)))
    script.ok(call, JoinAnswer("a", 1, "a"), 0.0)
    assert script.kinds() == set()
    script.ok(early, JoinAnswer("b", 2, "a"), 0.0)
    script.decide(GenerationLanded(G, 2, "a", ("a", "b")))
    assert script.kinds() == {Anomaly.ASSIGNMENT_NOT_DURABLE}


@pytest.mark.parametrize("operation", [SyncGroup(G, "a", 1), ConsumerHeartbeat(G, "a", 1)])
def test_an_assignment_is_told_as_the_lane_has_it(script: Script, operation):
    script.decide(AssignmentLanded(G, 1, (("a", (P,)),)), MemberOwns(G, "a", 1, (P,), ()))
    script.ok(script.invoke("a", "b1", operation, 0.0), Assigned("a", 1, (P,)), 0.0)
    assert script.kinds() == set()
    script.ok(script.invoke("a", "b1", operation, 0.0), Assigned("a", 1, (P, Q)), 0.0)
    assert script.kinds() == {Anomaly.ASSIGNMENT_NOT_DURABLE}


def test_a_member_is_not_told_to_own_what_has_become_anothers(script: Script):
    asked = script.invoke("a", "b1", SyncGroup(G, "a", 1), 0.0)
    assigned(script, "a", 1)
    assigned(script, "b", 2)
    script.ok(asked, Assigned("a", 1, (P,)), 0.0)
    assert script.kinds() == set()
    late = script.invoke("a", "b1", SyncGroup(G, "a", 1), 0.0)
    script.ok(late, Assigned("a", 1, (P,)), 0.0)
    assert script.kinds() == {Anomaly.TOLD_ANOTHERS}


def test_a_commit_is_acked_only_when_it_is_durable(script: Script):
    call = script.commit(1, "a", 5)
    script.ok(call, OffsetsTaken((P,)), 0.0)
    script.land_commit(1, 5)
    assert script.kinds() == {Anomaly.COMMIT_NOT_DURABLE}


def test_an_offset_is_told_only_when_it_counts(script: Script):
    script.commit(1, "a", 5)
    script.land_commit(1, 5)
    script.told(5, 1)
    assert script.kinds() == set()
    script.told(9, 2)
    script.land_commit(2, 9)
    assert script.kinds() == {Anomaly.OFFSET_NOT_DURABLE}


def test_an_offset_of_an_open_transaction_does_not_count(script: Script):
    script.land_commit(1, 5, (7, 0))
    script.told(-1, -1)
    assert script.kinds() == set()
    script.told(5, 1)
    assert script.kinds() == {Anomaly.OFFSET_NOT_DURABLE}


def test_an_offset_goes_back_only_by_a_later_commit(script: Script):
    script.committed(1, "a", 5)
    script.committed(2, "a", 3)
    script.told(3, 2)
    assert script.kinds() == set()
    script.told(5, 1)
    assert script.kinds() == {Anomaly.COMMITTED_BACK}


def test_a_committed_offset_does_not_vanish(script: Script):
    script.committed(1, "a", 5)
    script.told(-1, -1)
    assert script.kinds() == {Anomaly.COMMITTED_BACK}


def test_what_overlaps_a_commit_may_tell_the_offset_before(script: Script):
    asked = script.invoke("c", "b1", FetchOffsets(G, (P,)), 0.0)
    script.committed(1, "a", 5)
    script.ok(asked, OffsetsTold(((P, -1, -1),)), 0.0)
    assert script.kinds() == set()


def test_a_committed_transaction_is_read_whole(script: Script):
    script.write(P, 0, 1, 10)
    script.write(Q, 0, 2, 10)
    script.end(10, committed=True)
    script.read(P, 1, (0, 1))
    script.read(Q, 1, (0, 2))
    assert script.kinds() == set()


def test_a_transaction_that_is_read_in_part_is_torn_and_lost(script: Script):
    script.write(P, 0, 1, 10)
    script.write(Q, 0, 2, 10)
    script.end(10, committed=True)
    script.read(P, 1, (0, 1))
    script.read(Q, 1)
    assert script.kinds() == {Anomaly.TORN_TRANSACTION, Anomaly.COMMITTED_LOST}


def test_offsets_are_part_of_their_transaction(script: Script):
    script.write(P, 0, 1, 10)
    script.commit(1, "", 5, -1, transaction=10)
    script.land_commit(1, 5, (7, 0))
    script.invoke("t", "b1", EndTransaction("id", 10, True, 7, 0), 0.0)
    script.decide(OffsetsEnded(G, 7, True))
    assert script.kinds() == set()
    script.read(P, 1)
    assert script.kinds() == {Anomaly.TORN_TRANSACTION}


def test_what_nobody_committed_is_never_read_as_committed(script: Script):
    script.write(P, 0, 1, 10)
    script.read(P, 1)
    assert script.kinds() == set()
    script.read(P, 1, (0, 1))
    script.end(10, committed=True)
    assert Anomaly.ABORTED_READ in script.kinds()


def test_what_was_aborted_is_never_read_as_committed(script: Script):
    script.write(P, 0, 1, 10)
    script.end(10, committed=False)
    script.read(P, 1)
    assert script.kinds() == set()
    script.read(P, 1, (0, 1))
    assert Anomaly.ABORTED_READ in script.kinds()


def test_a_fenced_producer_writes_no_more(script: Script):
    script.init(0)
    script.write(P, 0, 1, 10, p=(7, 0))
    script.init(1)
    script.write(P, 1, 2, 11, p=(7, 1))
    assert script.kinds() == set()
    script.write(P, 2, 3, 10, p=(7, 0))
    assert script.kinds() == {Anomaly.ZOMBIE}


def test_a_fenced_producer_ends_nothing_and_commits_no_offsets(script: Script):
    script.init(1)
    script.land_commit(1, 5, (7, 1))
    script.end(10, committed=True, p=(7, 1))
    assert script.kinds() == set()
    script.end(11, committed=True, p=(7, 0))
    assert script.kinds() == {Anomaly.ZOMBIE}


def test_a_late_offset_commit_of_a_fenced_producer_is_named(script: Script):
    script.init(1)
    script.land_commit(1, 5, (7, 0))
    assert script.kinds() == {Anomaly.ZOMBIE}


def test_the_last_stable_offset_never_goes_back(script: Script):
    script.write(P, 0, 1, 10)
    script.write(P, 1, 2, 11)

    def read(stable: int) -> None:
        call = script.invoke("r", "b2", Fetch(P, 0, READ_COMMITTED), 0.0)
        script.ok(call, Fetched((), 2, 0, stable, stable), 0.0)

    read(1)
    read(2)
    assert script.kinds() == set()
    read(0)
    assert script.kinds() == {Anomaly.STABLE_BACK}


def test_where_all_transactions_have_ended_everything_can_be_read(script: Script):
    script.write(P, 0, 1, 10)
    script.end(10, committed=False)
    script.ok(
        script.invoke("r", "b2", Fetch(P, 0, READ_COMMITTED), 0.0), Fetched((), 1, 0, 0, 0), 0.0
    )
    assert script.kinds() == set()
    script.history.is_settled = True
    assert script.kinds() == {Anomaly.STABLE_STUCK}


def stream(script: Script, *outputs: int) -> None:
    """One input record, and its outputs, each in a transaction of its own that is committed."""
    call = script.invoke("f", "b1", Produce(P, (100,)), 0.0)
    script._land(LandedKind.DATA, appends=(Append(P, 0, (100,)),))
    script.ok(call, Produced(0), 0.0)
    script.history.cold[P] = ColdLog(((0, 100),), 0, 1)
    script.read(P, 1, (0, 100))
    for number, value in enumerate(outputs):
        script.history.sources[value] = (P, 0)
        script.write(Q, number, value, 10 + number)
        script.end(10 + number, committed=True)
    script.read(Q, len(outputs), *enumerate(outputs))
    script.history.is_settled = True


def test_each_input_has_one_output(script: Script):
    stream(script, 1)
    script.committed(1, "a", 1)
    assert script.kinds() == set()


def test_two_committed_outputs_of_one_input_are_named(script: Script):
    stream(script, 1, 2)
    assert script.kinds() == {Anomaly.OUTPUT_DOUBLED}


def test_a_committed_input_without_output_is_named(script: Script):
    stream(script)
    script.history.sources[5] = (P, 3)
    script.committed(1, "a", 1)
    assert Anomaly.OUTPUT_LOST in script.kinds()
