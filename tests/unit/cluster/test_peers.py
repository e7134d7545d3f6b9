"""What a broker knows of the others: silence, incarnations, and the newest leader epoch."""

import dataclasses

from holdfast.cluster.peers import Leader, PeerReport, Peers
from holdfast.identifiers import BrokerId, LaneId

LANE = LaneId(1)
ONE = PeerReport(broker_id=BrokerId(1), incarnation=10, host="one", port=1, lanes={LANE: 3})
TWO = PeerReport(broker_id=BrokerId(2), incarnation=10, host="two", port=2)


def test_a_broker_that_is_silent_is_gone_and_leads_nothing():
    peers = Peers(silence_s=3.0)
    peers.heard(ONE, 100.0)
    assert peers.leader_of(LANE, 102.9) == Leader(BrokerId(1), 3)
    assert set(peers.alive(102.9)) == {1}
    assert peers.leader_of(LANE, 103.0) is None
    assert not peers.alive(103.0)


def test_the_highest_leader_epoch_counts_whoever_was_heard_last():
    peers = Peers()
    peers.heard(dataclasses.replace(TWO, lanes={LANE: 4}), 100.0)
    peers.heard(ONE, 101.0)
    assert peers.leader_of(LANE, 101.0) == Leader(BrokerId(2), 4)


def test_a_lane_that_was_given_up_has_no_leader_until_a_newer_one_speaks():
    peers = Peers()
    peers.heard(ONE, 100.0)
    peers.heard(dataclasses.replace(ONE, lanes={}), 100.5)
    assert peers.leader_of(LANE, 100.5) is None
    peers.heard(dataclasses.replace(TWO, lanes={LANE: 2}), 100.6)
    assert peers.leader_of(LANE, 100.6) is None
    assert peers.leader_epoch_of(LANE) == 3
    peers.heard(dataclasses.replace(TWO, lanes={LANE: 4}), 100.7)
    assert peers.leader_of(LANE, 100.7) == Leader(BrokerId(2), 4)


def test_an_older_incarnation_of_a_broker_is_not_listened_to():
    peers = Peers()
    newer = dataclasses.replace(ONE, incarnation=11, host="new", lanes={})
    peers.heard(newer, 100.0)
    peers.heard(ONE, 101.0)
    assert peers.report_of(BrokerId(1)) == newer
    assert peers.leader_of(LANE, 101.0) is None


def test_an_older_incarnation_is_listened_to_again_where_the_younger_one_is_silent():
    peers = Peers()
    peers.heard(dataclasses.replace(ONE, incarnation=11, host="new", lanes={}), 100.0)
    peers.heard(ONE, 100.0 + peers.silence_s)
    assert peers.report_of(BrokerId(1)) == ONE
    assert peers.leader_of(LANE, 100.0 + peers.silence_s) == Leader(BrokerId(1), 3)


def test_a_broker_whose_port_is_closed_need_not_be_waited_for():
    peers = Peers()
    peers.heard(ONE, 100.0)
    peers.is_gone(BrokerId(1), 100.0)
    assert not peers.alive(100.0)
    assert peers.leader_of(LANE, 100.0) is None


def test_a_lane_that_was_released_to_one_broker_and_taken_by_another_is_led_by_the_other():
    peers = Peers()
    three = dataclasses.replace(TWO, broker_id=BrokerId(3))
    for report in (ONE, TWO, three):
        peers.heard(report, 100.0)
    peers.hand_over(LANE, Leader(BrokerId(2), 4))
    peers.heard(dataclasses.replace(three, lanes={LANE: 4}), 100.1)
    assert peers.leader_of(LANE, 100.1) == Leader(BrokerId(3), 4)


def test_a_lane_that_was_given_is_promised_to_its_taker_until_that_one_speaks():
    peers = Peers()
    peers.heard(ONE, 100.0)
    peers.heard(TWO, 100.0)
    assert peers.promised_leader_of(LANE, 100.0) is None
    peers.heard(dataclasses.replace(ONE, lanes={}, given={LANE: Leader(BrokerId(2), 4)}), 100.5)
    assert peers.leader_of(LANE, 100.5) is None
    assert peers.promised_leader_of(LANE, 100.5) == Leader(BrokerId(2), 4)
    peers.heard(dataclasses.replace(ONE, lanes={}, given={LANE: Leader(BrokerId(2), 4)}), 100.6)
    assert peers.promised_leader_of(LANE, 100.6) == Leader(BrokerId(2), 4)
    peers.heard(dataclasses.replace(TWO, lanes={LANE: 4}), 100.7)
    assert peers.leader_of(LANE, 100.7) == Leader(BrokerId(2), 4)


def test_a_lane_is_promised_to_nobody_that_is_silent_or_that_the_giver_speaks_of_no_more():
    peers = Peers(silence_s=3.0)
    peers.heard(ONE, 100.0)
    peers.heard(TWO, 100.0)
    given = dataclasses.replace(ONE, lanes={}, given={LANE: Leader(BrokerId(2), 4)})
    peers.heard(given, 102.0)
    assert peers.promised_leader_of(LANE, 103.0) is None
    peers.heard(TWO, 103.0)
    assert peers.promised_leader_of(LANE, 103.0) == Leader(BrokerId(2), 4)
    peers.heard(dataclasses.replace(ONE, lanes={}), 104.0)
    assert peers.promised_leader_of(LANE, 104.0) is None


def test_a_promise_that_is_older_than_what_was_heard_since_does_not_count():
    """Of a lane that went from 1 to 2 and back within a moment: 1 still speaks of the first."""
    peers = Peers()
    peers.heard(dataclasses.replace(TWO, lanes={LANE: 4}), 100.0)
    peers.heard(dataclasses.replace(ONE, lanes={}, given={LANE: Leader(BrokerId(2), 4)}), 100.1)
    peers.heard(dataclasses.replace(TWO, given={LANE: Leader(BrokerId(1), 5)}), 100.2)
    assert peers.promised_leader_of(LANE, 100.2) == Leader(BrokerId(1), 5)
    peers.heard(dataclasses.replace(ONE, lanes={LANE: 5}), 100.3)
    assert peers.leader_of(LANE, 100.3) == Leader(BrokerId(1), 5)
    peers.heard(dataclasses.replace(ONE, lanes={}), 100.4)
    peers.heard(dataclasses.replace(TWO, given={LANE: Leader(BrokerId(1), 4)}), 100.4)
    assert peers.promised_leader_of(LANE, 100.4) is None


def test_a_broker_that_only_others_hear_is_alive_for_as_long_as_they_hear_it():
    near, far = Peers(), Peers()
    near.heard(ONE, 100.0)
    (passed_on,) = near.to_pass_on(101.0)
    assert far.heard_of(passed_on, 50.0, 50.0)
    assert far.alive(51.5) == {BrokerId(1): ONE}
    assert far.alive(49.0 + far.silence_s) == {}
    assert near.to_pass_on(100.0 + near.silence_s) == []


def test_what_was_heard_of_a_broker_is_not_passed_on_again():
    near, far = Peers(), Peers()
    near.heard(ONE, 100.0)
    for peer in near.to_pass_on(100.0):
        assert far.heard_of(peer, 50.0, 50.0)
    assert far.to_pass_on(50.0) == []


def test_older_talk_does_not_bring_back_a_broker_whose_port_is_closed():
    near, far = Peers(), Peers()
    near.heard(ONE, 100.0)
    far.is_gone(BrokerId(1), 50.0)
    assert not far.heard_of(near.to_pass_on(100.5)[0], 50.2, 50.2)
    assert far.alive(50.2) == {}
    assert far.heard_of(near.to_pass_on(100.5)[0], 50.8, 50.8)
