"""What a broker knows about the others: which ones are alive, and which one leads which lane.

Pure. Decides no ownership: a lane belongs to the broker that created its next number. What is known
here goes to clients, and says which broker to ask first. If it is out of date, a client asks once
more. Must never let an older leader epoch replace a newer one.
"""

import dataclasses
from collections.abc import Collection, Mapping
from typing import NamedTuple

from holdfast.identifiers import BrokerId, LaneId

SILENCE_S = 3.0
"""A broker that was not heard for this long counts as gone."""
SHOWN_S = 25.0
"""How long a report in the store counts after it was found to be new: brokers leave one every ten
seconds."""


class Leader(NamedTuple):
    """The leader of the partitions of a lane."""

    broker_id: BrokerId
    leader_epoch: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PeerReport:
    """What a broker reports about itself."""

    broker_id: BrokerId
    incarnation: int
    """The number of the process: of two with one broker id, the one with the higher counts."""
    host: str
    port: int
    rack: str | None = None
    is_draining: bool = False
    is_store_away: bool = False
    """It has not reached the store for a while: brokers that do should have its lanes."""
    control_number: int = 0
    """How far it has followed the control lane."""
    lanes: Mapping[LaneId, int] = dataclasses.field(default_factory=dict[LaneId, int])
    """The lanes that it serves, with the leader epoch of each."""
    cleared: Mapping[LaneId, int] = dataclasses.field(default_factory=dict[LaneId, int])
    """For each lane, how far the control lane was known when the lane had nothing of a deleted
    topic left."""
    awaits: Mapping[LaneId, BrokerId] = dataclasses.field(default_factory=dict[LaneId, BrokerId])
    """For each lane that misses records, the broker whose disk holds them."""
    coming: Collection[LaneId] = ()
    """Lanes that it is taking over, and will serve after the wait for their previous owner."""
    given: Mapping[LaneId, Leader] = dataclasses.field(default_factory=dict[LaneId, Leader])
    """Lanes that it has just given away: the new leader of each, with the next leader epoch."""


class HeardPeer(NamedTuple):
    """A report that a broker got from another one, and passes on."""

    report: PeerReport
    age_s: float
    """How long ago the broker got the report."""


class _Heard(NamedTuple):
    report: PeerReport
    at: float


class Peers:
    """The brokers that one of them has heard of; time is passed in."""

    def __init__(self, silence_s: float = SILENCE_S) -> None:
        self.silence_s = silence_s
        self._heard: dict[BrokerId, _Heard] = {}
        self._told_at: dict[BrokerId, float] = {}
        """When each broker itself last sent a report to this one."""
        self._shown: dict[BrokerId, _Heard] = {}
        """The reports that brokers have left in the store."""
        self._gone_at: dict[BrokerId, float] = {}
        self._leaders: dict[LaneId, Leader] = {}

    def heard(self, report: PeerReport, now: float) -> None:
        """Take in a report that a broker sent, in a ping or in the response to one."""
        if self._note(report, now, now):
            self._told_at[report.broker_id] = now

    def heard_of(self, peer: HeardPeer, asked_at: float, now: float) -> bool:
        """Take in a report that another broker passes on; its age counts from when that broker was
        asked. True if it is news: a sign of life younger than all that is known here."""
        broker_id, at = peer.report.broker_id, asked_at - peer.age_s
        known = self._heard.get(broker_id)
        if known is not None and known.at >= at:
            return False
        is_younger = at > self._gone_at.get(broker_id, float("-inf"))
        return is_younger and now - at < self.silence_s and self._note(peer.report, at, now)

    def to_pass_on(self, now: float) -> list[HeardPeer]:
        """Return what brokers themselves recently reported to this one. Reports that came through
        others are not passed on, so that hearsay does not keep a dead broker alive."""
        return [
            HeardPeer(heard.report, now - at)
            for broker_id, heard in self._heard.items()
            if (at := self._told_at.get(broker_id)) is not None and now - at < self.silence_s
        ]

    def _note(self, report: PeerReport, at: float, now: float) -> bool:
        known = self._heard.get(report.broker_id)
        is_older = known is not None and known.report.incarnation > report.incarnation
        # A younger process that is silent may have died before it was registered: then the older
        # one is still the broker.
        if known is not None and is_older and now - known.at < self.silence_s:
            return False
        self._heard[report.broker_id] = _Heard(report, at)
        self._note_leaders(report)
        return True

    def _note_leaders(self, report: PeerReport) -> None:
        for lane, leader_epoch in report.lanes.items():
            leader = self._leaders.get(lane)
            # Only one broker ever has a leader epoch, so a report replaces a leader that was only
            # expected to have it.
            if leader is None or leader.leader_epoch <= leader_epoch:
                self._leaders[lane] = Leader(report.broker_id, leader_epoch)

    def shown(self, report: PeerReport, now: float) -> None:
        """Take in a new report that a broker has left in the store."""
        self._shown[report.broker_id] = _Heard(report, now)
        self._note_leaders(report)

    def show_only(self, brokers: Collection[BrokerId]) -> None:
        """Forget other brokers' reports in the store: a broker that removed its own is gone."""
        for gone in [each for each in self._shown if each not in brokers]:
            del self._shown[gone]

    def is_gone(self, broker_id: BrokerId, now: float) -> None:
        """Forget a broker at whose address nothing listens: it need not be waited for."""
        self._heard.pop(broker_id, None)
        self._told_at.pop(broker_id, None)
        self._shown.pop(broker_id, None)
        self._gone_at[broker_id] = now

    def alive(self, now: float) -> dict[BrokerId, PeerReport]:
        """Return the brokers that were heard recently, and those that only the store shows. If the
        former are more, leave the latter out: they are cut off, perhaps from clients too, and need
        not be waited for."""
        heard = self.heard_of_late(now)
        shown = {
            broker_id: left.report
            for broker_id, left in self._shown.items()
            if broker_id not in heard and now - left.at < SHOWN_S
        }
        return heard | shown if len(heard) <= len(shown) else heard

    def heard_of_late(self, now: float) -> dict[BrokerId, PeerReport]:
        """Return the brokers that reported to this broker, or to another that passed it on."""
        return {
            broker_id: heard.report
            for broker_id, heard in self._heard.items()
            if now - heard.at < self.silence_s
        }

    def next_silence_s(self, now: float) -> float:
        """Return the seconds until the next broker counts as gone, unless it reports before."""
        left = [heard.at + self.silence_s - now for heard in self._heard.values()]
        return min((each for each in left if each > 0), default=self.silence_s)

    def is_shown(self, broker_id: BrokerId, now: float) -> bool:
        """True if the store shows that a broker is alive."""
        left = self._shown.get(broker_id)
        return left is not None and now - left.at < SHOWN_S

    def heard_at(self, broker_id: BrokerId) -> float:
        """Return when a broker was last heard."""
        heard = self._heard.get(broker_id)
        return heard.at if heard is not None else float("-inf")

    def report_of(self, broker_id: BrokerId) -> PeerReport | None:
        known = [
            reports[broker_id] for reports in (self._heard, self._shown) if broker_id in reports
        ]
        return max(known, key=lambda heard: heard.at).report if known else None

    def leader_of(self, lane: LaneId, now: float) -> Leader | None:
        """Return the leader of a lane; None while no broker that is alive reports that it leads."""
        leader = self._leaders.get(lane)
        report = self.alive(now).get(leader.broker_id) if leader is not None else None
        if leader is None or report is None:
            return None
        return leader if report.lanes.get(lane) == leader.leader_epoch else None

    def next_leader_of(self, lane: LaneId, now: float) -> Leader | None:
        """Return the leader as `leader_of`, but also a broker that the lane was handed to and that
        has not reported yet that it serves it."""
        leader = self._leaders.get(lane)
        return leader if leader is not None and leader.broker_id in self.alive(now) else None

    def promised_leader_of(self, lane: LaneId, now: float) -> Leader | None:
        """Return the broker that was just given a lane and has not reported yet that it serves it.
        None if any broker has reported a later leader epoch."""
        alive = self.alive(now)
        given = [report.given[lane] for report in alive.values() if lane in report.given]
        promised = max(given, key=lambda to: to.leader_epoch, default=None)
        if promised is None or promised.broker_id not in alive:
            return None
        return promised if promised.leader_epoch >= self.leader_epoch_of(lane) else None

    def hand_over(self, lane: LaneId, to: Leader) -> None:
        """Note that a lane was released to a broker that has not reported yet that it serves it."""
        leader = self._leaders.get(lane)
        if leader is None or leader.leader_epoch < to.leader_epoch:
            self._leaders[lane] = to

    def owners(self, now: float) -> dict[LaneId, BrokerId]:
        """Return the owner of each lane, or the broker that is about to own it."""
        alive = self.alive(now)
        given = {
            lane: to.broker_id
            for report in alive.values()
            for lane, to in report.given.items()
            if to.broker_id in alive and not alive[to.broker_id].is_store_away
        }
        coming = {
            lane: each
            for each, report in alive.items()
            for lane in report.coming
            if not report.is_store_away
        }
        led = {
            lane: leader.broker_id
            for lane in self._leaders
            if (leader := self.leader_of(lane, now)) is not None
            and not alive[leader.broker_id].is_store_away
        }
        return given | coming | led

    def awaited(self, now: float) -> dict[LaneId, BrokerId]:
        """Return the broker that a lane waits for, for each lane that waits for one."""
        return {
            lane: broker_id
            for report in self.alive(now).values()
            for lane, broker_id in report.awaits.items()
        }

    def cleared_number(self, lane: LaneId, now: float) -> int:
        """Return how far the owner of a lane knew the control lane when the lane had nothing
        deleted left; -1 if no owner reports it."""
        leader = self.leader_of(lane, now)
        report = self.report_of(leader.broker_id) if leader is not None else None
        return report.cleared.get(lane, -1) if report is not None else -1

    def leader_epoch_of(self, lane: LaneId) -> int:
        """Return the newest leader epoch of a lane that any broker has reported; -1 if none has."""
        leader = self._leaders.get(lane)
        return leader.leader_epoch if leader is not None else -1
