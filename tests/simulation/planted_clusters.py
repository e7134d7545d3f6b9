"""Bugs of brokers that share the lanes: some must be found, and some must do no harm.

No production code knows of them. CLUSTERS break a promise; WRONG_ABOUT_WHO are wrong only about who
tries, who is asked first or how soon, and safety must not rest on any of that.
"""

import asyncio

from simulation.broker_process import BrokerProcess
from tests.simulation.planted_coordinators import Hooked

from holdfast.broker.broker import Broker
from holdfast.broker.cluster.membership import Membership
from holdfast.broker.gaps import Gaps
from holdfast.broker.lanes.claiming import Claimer
from holdfast.broker.lanes.served import ServedLanes
from holdfast.cluster.peers import Leader, Peers
from holdfast.identifiers import CONTROL_LANE
from holdfast.log.data_lane import DataLane


class DoesNotWait(Claimer):
    async def wait_out(self, lane):
        return None


class ServesTooEarly(BrokerProcess):
    def make_broker(self) -> Broker:
        broker = super().make_broker()
        broker._claimer.__class__ = DoesNotWait
        return broker


class NotReleased(DataLane):
    def is_valid(self) -> bool:
        return self._proof.is_fresh()


class GivesAndKeeps(ServedLanes):
    def _leave(self, lane_id) -> None:
        """Others are told that it is theirs, and it is answered for all the same."""


class AnswersForWhatItGave(BrokerProcess):
    def make_broker(self) -> Broker:
        broker = super().make_broker()
        broker.served.__class__ = GivesAndKeeps
        broker.served.lanes = Hooked(self.keep_valid)
        return broker

    @staticmethod
    def keep_valid(lane: DataLane) -> None:
        lane.__class__ = NotReleased


class NeverValidates(DataLane):
    def is_valid(self) -> bool:
        return self.failure is None and not self._released


class TrustsItsClaim(BrokerProcess):
    def make_broker(self) -> Broker:
        broker = super().make_broker()
        broker.served.lanes = Hooked(self.trust)
        return broker

    @staticmethod
    def trust(lane: DataLane) -> None:
        lane.__class__ = NeverValidates


class AnswersBeforeTheRelease(Broker):
    """Who is given a lane finds no release in it, and waits as for one who says nothing."""

    async def hand_over(self, lane, leader_epoch, to):
        is_ours = lane in self.report().lanes
        self._spawn(self._hand_over_later(lane, leader_epoch, to))
        await asyncio.sleep(0)
        return is_ours

    async def _hand_over_later(self, lane, leader_epoch, to) -> None:
        await asyncio.sleep(0.3)
        await super().hand_over(lane, leader_epoch, to)


class TrustingMembership(Membership):
    async def _is_free(self, lane):
        was_led = self.peers.leader_of(lane, self.now()) is not None
        is_free = await super()._is_free(lane)
        if is_free and was_led:
            self._member._claimer.given.add(lane)
        return is_free


class TrustingClaimer(Claimer):
    """Who was told that a lane is free does not wait, whatever the lane says."""

    async def wait_out(self, lane):
        if lane.cursor.lane not in self.given:
            await super().wait_out(lane)


class TrustsAnEarlyHandOver(BrokerProcess):
    broker_type = AnswersBeforeTheRelease

    def make_broker(self) -> Broker:
        broker = super().make_broker()
        broker._claimer.__class__ = TrustingClaimer
        broker._claimer.given = set()
        if broker.membership is not None:
            broker.membership.__class__ = TrustingMembership
        return broker


class CalledAtOnce(Gaps):
    def judge(self, partition, header, early):
        return early.otherwise


class CallsGapsAtOnce(BrokerProcess):
    def make_broker(self) -> Broker:
        broker = super().make_broker()
        broker.gaps.__class__ = CalledAtOnce
        return broker


# What must do no harm.


class OlderEpochs(Peers):
    def heard(self, report, now) -> None:
        before = dict(self._leaders)
        super().heard(report, now)
        for lane, leader_epoch in report.lanes.items():
            leader = before.get(lane)
            if leader is not None and leader_epoch > leader.leader_epoch:
                self._leaders[lane] = leader  # the newer one is news to nobody
            elif leader is None or leader_epoch < leader.leader_epoch:
                self._leaders[lane] = Leader(report.broker_id, leader_epoch)


class PrefersOlderEpochs(BrokerProcess):
    def make_broker(self) -> Broker:
        broker = super().make_broker()
        if broker.membership is not None:
            broker.membership.peers.__class__ = OlderEpochs
        return broker


class HandsOverTooEarly(BrokerProcess):
    broker_type = AnswersBeforeTheRelease


class Greedy(Membership):
    """Claims whatever it wants of brokers that answer, without asking them."""

    async def _is_free(self, lane):
        return lane != CONTROL_LANE or await super()._is_free(lane)


class TakesWithoutAsking(BrokerProcess):
    def make_broker(self) -> Broker:
        broker = super().make_broker()
        if broker.membership is not None:
            broker.membership.__class__ = Greedy
        return broker


CLUSTERS: dict[str, type[BrokerProcess]] = {
    "serves-too-early": ServesTooEarly,
    "answers-for-what-it-gave": AnswersForWhatItGave,
    "trusts-its-claim": TrustsItsClaim,
    "trusts-an-early-hand-over": TrustsAnEarlyHandOver,
    "calls-gaps-at-once": CallsGapsAtOnce,
}
WRONG_ABOUT_WHO: dict[str, type[BrokerProcess]] = {
    "prefers-older-epochs": PrefersOlderEpochs,
    "hands-over-too-early": HandsOverTooEarly,
    "takes-without-asking": TakesWithoutAsking,
}
