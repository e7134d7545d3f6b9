"""What a broker says of itself to the others, in the words of PeerPing. Pure."""

from holdfast.cluster.peers import PeerReport
from holdfast.identifiers import BrokerId, LaneId
from holdfast.protocol.messages.peer_ping import PeerLane, PeerReportFields


def encoded(report: PeerReport) -> PeerReportFields:
    return PeerReportFields(
        broker_id=report.broker_id,
        incarnation=report.incarnation,
        host=report.host,
        port=report.port,
        rack=report.rack,
        is_draining=report.is_draining,
        control_number=report.control_number,
        lanes=[
            PeerLane(
                lane=lane,
                leader_epoch=epoch,
                cleared_number=report.cleared.get(lane, -1),
                awaited_broker_id=report.awaits.get(lane, -1),
            )
            for lane, epoch in sorted(report.lanes.items())
        ],
    )


def decoded(fields: PeerReportFields) -> PeerReport:
    return PeerReport(
        broker_id=BrokerId(fields.broker_id),
        incarnation=fields.incarnation,
        host=fields.host,
        port=fields.port,
        rack=fields.rack,
        is_draining=fields.is_draining,
        control_number=fields.control_number,
        lanes={LaneId(each.lane): each.leader_epoch for each in fields.lanes},
        cleared={LaneId(each.lane): each.cleared_number for each in fields.lanes},
        awaits={
            LaneId(each.lane): BrokerId(each.awaited_broker_id)
            for each in fields.lanes
            if each.awaited_broker_id >= 0
        },
    )
