"""Who may answer for a lane, on hand-written histories; and what a settled cluster looks like."""

from simulation.cluster_fleet import unsettled

from holdfast.verify.checkers import Anomaly, check
from holdfast.verify.history import (
    Append,
    Fetch,
    Fetched,
    History,
    LandedKind,
    Listed,
    ListOffsets,
    Recorder,
    Which,
)

P = "orders/0"
VALID_S = 1.0
OWNERS = {
    Anomaly.ANSWER_WITHOUT_CLAIM,
    Anomaly.ANSWER_AFTER_RELEASE,
    Anomaly.STALE_ANSWER,
    Anomaly.SERVED_TOO_EARLY,
    Anomaly.OWNERS_OVERLAP,
}


class Script(Recorder):
    """One lane, and who claims and answers when."""

    def __init__(self) -> None:
        super().__init__()
        self._number = -1
        self._claim = 0

    def _land(self, kind: LandedKind, process: str, at: float, owed_s: float = 0.0) -> None:
        self._number += 1
        if kind is LandedKind.CLAIM:
            self._claim = self._number
        self.landed(
            lane=1,
            number=self._number,
            kind=kind,
            claim=self._claim,
            writer=f"{process} {self._claim}",
            previous=f"hash {self._number - 1}",
            digest=f"hash {self._number}",
            appends=(Append(P, 0, (7,)),) if self._number == 1 else (),
            at=at,
            process=process if kind is LandedKind.CLAIM else "",
            valid_s=VALID_S if kind is LandedKind.CLAIM else -1.0,
            owed_s=owed_s,
        )

    def claim(self, process: str, at: float, owed_s: float = 0.0) -> None:
        self._land(LandedKind.CLAIM, process, at, owed_s)

    def data(self, process: str, at: float) -> None:
        self._land(LandedKind.DATA, process, at)

    def release(self, process: str, at: float) -> None:
        self._land(LandedKind.RELEASE, process, at)

    def latest(self, process: str, at: float) -> None:
        call = self.invoke("w", process, ListOffsets(P, Which.LATEST), at)
        self.ok(call, Listed(1), at)


def begun() -> Script:
    script = Script()
    script.claim("a", 0.0)
    script.data("a", 0.1)
    return script


def kinds(history: History) -> set[Anomaly]:
    return {violation.kind for violation in check(history)} & OWNERS


def test_an_owner_and_its_successor_may_answer_one_after_the_other():
    script = begun()
    script.latest("a", 0.2)
    script.claim("b", 1.0)
    script.latest("a", 1.9)
    script.latest("b", 2.2)
    assert kinds(script.history) == set()


def test_who_never_claimed_a_lane_may_not_answer_for_it():
    script = begun()
    script.latest("b", 0.2)
    assert kinds(script.history) == {Anomaly.ANSWER_WITHOUT_CLAIM}


def test_a_fetch_that_vouches_for_nothing_needs_no_claim():
    script = begun()
    call = script.invoke("c", "b", Fetch(P, 0), 0.2)
    script.ok(call, Fetched(((0, 7),), -1), 0.3)
    assert kinds(script.history) == set()


def test_who_has_released_a_lane_may_answer_only_what_it_was_asked_before():
    script = begun()
    early = script.invoke("w", "a", ListOffsets(P, Which.LATEST), 0.2)
    script.release("a", 0.3)
    script.ok(early, Listed(1), 0.4)
    assert kinds(script.history) == set()
    script.latest("a", 0.5)
    assert kinds(script.history) == {Anomaly.ANSWER_AFTER_RELEASE}


def test_who_claims_again_after_its_release_may_answer():
    script = begun()
    script.release("a", 0.3)
    script.claim("a", 0.4)
    script.latest("a", 0.5)
    assert kinds(script.history) == set()


def test_a_claim_that_is_not_the_newest_is_good_for_its_validity_only():
    script = begun()
    script.claim("b", 1.0)
    script.latest("a", 2.05)
    assert kinds(script.history) == set()
    script.latest("a", 2.2)
    assert kinds(script.history) == {Anomaly.STALE_ANSWER}


def test_once_the_newer_owner_has_answered_the_older_one_may_not():
    script = begun()
    script.claim("b", 1.0)
    script.latest("b", 1.1)
    script.latest("a", 1.2)
    assert kinds(script.history) == {Anomaly.OWNERS_OVERLAP}


def test_a_new_owner_may_not_answer_before_it_has_waited_as_its_claim_says():
    script = begun()
    script.claim("b", 1.0, owed_s=VALID_S)
    script.latest("b", 2.05)
    assert kinds(script.history) == set()
    script = begun()
    script.claim("b", 1.0, owed_s=VALID_S)
    script.latest("b", 1.9)
    assert kinds(script.history) == {Anomaly.SERVED_TOO_EARLY}


def test_answers_that_overlap_in_time_may_be_of_two_owners():
    script = begun()
    script.claim("b", 1.0)
    late = script.invoke("w", "a", ListOffsets(P, Which.LATEST), 1.05)
    script.latest("b", 1.1)
    script.ok(late, Listed(1), 1.2)
    assert kinds(script.history) == set()


def test_a_settled_cluster_has_one_owner_of_each_lane_and_even_shares():
    assert unsettled({"a": [0, 1], "b": [2], "c": [3]}, 3) == []
    assert unsettled({"a": [0, 1], "b": [2], "c": []}, 2) == []


def test_what_is_not_settled_is_named():
    assert unsettled({"a": [0, 1], "b": [2], "c": []}, 3) == ["lane 3 is owned by nobody"]
    assert unsettled({"a": [0, 1], "b": [1, 2], "c": [3]}, 3) == ["lane 1 is owned by ['a', 'b']"]
    assert unsettled({"a": [0, 1], "b": [2]}, 2) == ["2 of 3 brokers serve"]
    uneven = unsettled({"a": [0, 1, 2, 3], "b": [4], "c": []}, 4)
    assert len(uneven) == 1 and "not shared evenly" in uneven[0]
