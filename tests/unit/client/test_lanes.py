"""What an administrator is told of a broker's lanes."""

from holdfast.broker.cluster.reports import decoded, encoded
from holdfast.client.lanes import BrokerStatus
from holdfast.cluster.peers import Leader, PeerReport
from holdfast.identifiers import BrokerId, LaneId

REPORT = PeerReport(
    broker_id=BrokerId(1),
    incarnation=7,
    host="broker-1",
    port=9092,
    lanes={LaneId(0): 4, LaneId(3): 0},
    cleared={LaneId(0): -1, LaneId(3): 12},
    awaits={LaneId(3): BrokerId(2)},
    coming=frozenset([LaneId(5)]),
    given={LaneId(6): Leader(BrokerId(3), 8)},
)


def test_a_report_is_heard_as_it_was_said():
    assert decoded(encoded(REPORT)) == REPORT


def test_only_lanes_that_a_broker_serves_are_shown_not_those_that_come_or_were_given():
    status = BrokerStatus(1, "broker-1", 9092, None, encoded(REPORT))
    assert status.lanes == {0: 4, 3: 0}
    assert BrokerStatus(2, "broker-2", 9092, None, None).lanes == {}
