"""Checks that only a lane's owner answers for it, until its release or until its proof expires.

Pure. An answer is judged by the time of its question, so a request in progress is never blamed.
These checks do not wait for a wrong number: a process that answers without the right to is wrong
even if nothing has changed. Acks of records are not judged here: any broker may say that a retried
batch is in the log, and other checkers find what is not there.
"""

import bisect
import itertools
from collections.abc import Callable, Iterator

from holdfast.verify.checkers.knowledge import Knowledge
from holdfast.verify.checkers.lanes import chains
from holdfast.verify.checkers.violation import Anomaly, Violation
from holdfast.verify.history import (
    Call,
    DeleteRecords,
    Fetch,
    Fetched,
    LandedKind,
    ListOffsets,
    Outcome,
    StoredEntry,
)
from holdfast.verify.vocabulary import CommitOffsets, FetchOffsets

CLOCKS = 1.06
"""The factor by which an owner may exceed its validity by the clock of the history, because its own
clock may run slower."""


class _Lane:
    """The claims and releases of a lane, in order."""

    def __init__(self, chain: dict[int, StoredEntry]) -> None:
        self.claims: list[StoredEntry] = []
        self.released: dict[str, StoredEntry] = {}
        """Releases by the writer of the claim."""
        for number in sorted(chain):
            landing = chain[number]
            if landing.kind is LandedKind.CLAIM and landing.process:
                self.claims.append(landing)
            elif landing.kind is LandedKind.RELEASE:
                self.released[landing.writer] = landing
        self._events = [claim.sequence for claim in self.claims]

    def own_claim(self, process: str, before_event: int) -> int:
        """Return the index of a process's newest claim before an event, or -1 if it had none."""
        for place in range(bisect.bisect_left(self._events, before_event) - 1, -1, -1):
            if self.claims[place].process == process:
                return place
        return -1

    def next_claim(self, place: int) -> StoredEntry | None:
        return self.claims[place + 1] if place + 1 < len(self.claims) else None


def answered_without_claim(knowledge: Knowledge) -> list[Violation]:
    """Find processes that answer for a lane that they have never claimed."""

    def judge(call: Call, lane: _Lane) -> str | None:
        has_claimed = lane.own_claim(call.broker, call.completed) >= 0
        return None if has_claimed else "it has never claimed the lane"

    return _judged(knowledge, Anomaly.ANSWER_WITHOUT_CLAIM, judge)


def answered_after_release(knowledge: Knowledge) -> list[Violation]:
    """Find processes that answer for a lane although they were asked after they released it."""

    def judge(call: Call, lane: _Lane) -> str | None:
        place = lane.own_claim(call.broker, call.completed)
        released = lane.released.get(lane.claims[place].writer) if place >= 0 else None
        if released is None or released.sequence > call.invoked:
            return None
        return f"it had released the lane at {released.sequence}"

    return _judged(knowledge, Anomaly.ANSWER_AFTER_RELEASE, judge)


def stale_answer(knowledge: Knowledge) -> list[Violation]:
    """Find processes that answer although they were asked when their last proof had expired.

    The proof has expired if a newer claim is older than the validity of the process's own claim.
    """

    def judge(call: Call, lane: _Lane) -> str | None:
        place = lane.own_claim(call.broker, call.completed)
        newer = lane.next_claim(place) if place >= 0 else None
        if newer is None:
            return None
        over_at = newer.at + CLOCKS * lane.claims[place].valid_s
        if call.invoked_at <= over_at:
            return None
        return f"{newer.process} had claimed the lane {call.invoked_at - newer.at:.3f} s before"

    return _judged(knowledge, Anomaly.STALE_ANSWER, judge)


def served_too_early(knowledge: Knowledge) -> list[Violation]:
    """Find processes that answer before they have waited as long as their own claim demands."""

    def judge(call: Call, lane: _Lane) -> str | None:
        place = lane.own_claim(call.broker, call.completed)
        claim = lane.claims[place] if place >= 0 else None
        if claim is None or call.completed_at >= claim.at + claim.owed_s:
            return None
        has_older = lane.own_claim(call.broker, claim.sequence) >= 0
        if has_older:
            return None  # it may have answered under the older claim: other checkers judge that
        waited_s = call.completed_at - claim.at
        return f"it owed {claim.owed_s} s to the owner before, and waited {waited_s:.3f} s"

    return _judged(knowledge, Anomaly.SERVED_TOO_EARLY, judge)


def owners_overlap(knowledge: Knowledge) -> list[Violation]:
    """Find processes that answer for a lane when asked after an owner with a newer claim
    answered."""
    spoken: dict[int, list[tuple[int, int, Call]]] = {}
    lanes: dict[int, _Lane] = {}
    for _, lane, call in _answers(knowledge):
        place = lane.own_claim(call.broker, call.completed)
        if place >= 0:
            lanes[id(lane)] = lane
            spoken.setdefault(id(lane), []).append((call.completed, place, call))
    found: list[Violation] = []
    for key, answers in spoken.items():
        answers.sort(key=lambda answer: answer[0])
        events = [event for event, _, _ in answers]
        newest = list(itertools.accumulate((place for _, place, _ in answers), max))
        for _, place, call in answers:
            before = bisect.bisect_left(events, call.invoked) - 1
            if before >= 0 and newest[before] > place:
                newer = lanes[key].claims[newest[before]]
                text = (
                    f"{call.broker} answered {call.operation}, asked after {newer.process} had"
                    f" answered under its newer claim {newer.number} of lane {newer.lane}"
                )
                found.append(
                    Violation(Anomaly.OWNERS_OVERLAP, text, (call.invoked, call.completed))
                )
    return found


def _judged(
    knowledge: Knowledge, kind: Anomaly, judge: Callable[[Call, _Lane], str | None]
) -> list[Violation]:
    found: list[Violation] = []
    for key, lane, call in _answers(knowledge):
        problem = judge(call, lane)
        if problem is not None:
            text = f"{key}: {call.broker} answered {call.operation}, though {problem}"
            found.append(Violation(kind, text, (call.invoked, call.completed)))
    return found


def _answers(knowledge: Knowledge) -> Iterator[tuple[str, _Lane, Call]]:
    """Yield the answers that only a lane's owner may give; none if the history has no claims."""
    history = knowledge.history
    lanes = {lane: _Lane(chain) for lane, chain in chains(history).items()}
    if not any(lane.claims for lane in lanes.values()):
        return
    lane_of: dict[str, int] = {}
    for landing in history.landings:
        for append in landing.appends:
            lane_of[append.partition] = landing.lane
        for decision in landing.decisions:
            group = getattr(decision, "group", None)
            if group is not None:
                lane_of[f"group {group}"] = landing.lane
    for call in history.calls:
        if call.outcome is not Outcome.OK:
            continue
        match call.operation:
            case Fetch() if isinstance(call.result, Fetched) and call.result.high_watermark < 0:
                continue
            case Fetch() | ListOffsets() | DeleteRecords():
                key = call.operation.partition
            case FetchOffsets() | CommitOffsets():
                key = f"group {call.operation.group}"
            case _:
                continue
        if key in lane_of:
            yield key, lanes[lane_of[key]], call
