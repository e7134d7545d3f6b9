"""How well a cluster is, judged from what its brokers say."""

from holdfast.client.health import HealthVerdict, judge
from holdfast.client.lanes import BrokerStatus, ClusterStatus
from holdfast.protocol.messages.peer_ping import PeerLane, PeerReportFields


def broker(number: int, *lanes: int, control: int = 50, store_away: bool = False) -> BrokerStatus:
    report = PeerReportFields(
        broker_id=number,
        control_number=control,
        is_store_away=store_away,
        lanes=[PeerLane(lane=lane, leader_epoch=3) for lane in lanes],
    )
    return BrokerStatus(number, "h", 9000 + number, None, report)


def silent(number: int) -> BrokerStatus:
    return BrokerStatus(number, "h", 9000 + number, None, None)


def status(*brokers: BrokerStatus, lanes: int = 2, controller: int = 1) -> ClusterStatus:
    return ClusterStatus("c", controller, list(brokers), lanes)


LED = {("orders", 0): 1, ("orders", 1): 2}


def test_all_lanes_owned_and_all_partitions_led_is_healthy():
    found = judge(status(broker(1, 0, 1), broker(2, 2)), LED)
    assert found.verdict is HealthVerdict.HEALTHY
    assert found.control_lag == {1: 0, 2: 0}


def test_a_lane_that_nobody_has_is_named():
    found = judge(status(broker(1, 0, 1)), LED)
    assert found.verdict is HealthVerdict.UNHEALTHY
    assert found.lanes_without_owner == [2]
    assert found.problems == ["lane 2 has no owner"]


def test_a_lane_that_is_only_promised_has_no_owner():
    coming = broker(2)
    assert coming.report is not None
    coming.report.lanes = [PeerLane(lane=2, leader_epoch=-1, is_coming=True)]
    assert judge(status(broker(1, 0, 1), coming), LED).lanes_without_owner == [2]


def test_partitions_without_a_leader_are_counted_and_some_are_named():
    none = {("orders", number): -1 for number in range(7)}
    found = judge(status(broker(1, 0, 1, 2)), {**none, ("a", 0): 1})
    assert found.verdict is HealthVerdict.UNHEALTHY
    (problem,) = found.problems
    assert problem.startswith("7 partitions have no leader: orders-0, orders-1")
    assert problem.endswith("orders-4 and 2 more")


def test_a_broker_that_is_silent_behind_or_without_its_store_is_a_warning():
    found = judge(
        status(broker(1, 0, 1, 2), silent(2), broker(3, control=20), broker(4, store_away=True)),
        LED,
    )
    assert found.verdict is HealthVerdict.DEGRADED
    assert found.warnings == [
        "broker 2 at h:9002 does not answer",
        "broker 3 at h:9003 is 30 objects behind in the control lane",
        "broker 4 at h:9004 does not reach the store",
    ]
