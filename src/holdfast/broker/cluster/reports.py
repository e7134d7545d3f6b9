"""A broker's report about itself, to and from the fields of PeerPing. Pure."""

from collections.abc import Iterable

from holdfast.cluster.peers import HeardPeer, Leader, PeerReport
from holdfast.identifiers import BrokerId, LaneId
from holdfast.protocol.messages.peer_ping import (
    HeardPeerFields,
    PeerLane,
    PeerReportFields,
)

NOT_YET = -1
"""The leader epoch of a lane that is not claimed yet, or was given away."""


def encoded(report: PeerReport) -> PeerReportFields:
    return PeerReportFields(
        broker_id=report.broker_id,
        incarnation=report.incarnation,
        host=report.host,
        port=report.port,
        rack=report.rack,
        is_draining=report.is_draining,
        is_store_away=report.is_store_away,
        control_number=report.control_number,
        lanes=[
            PeerLane(
                lane=lane,
                leader_epoch=epoch,
                cleared_number=report.cleared.get(lane, -1),
                awaited_broker_id=report.awaits.get(lane, -1),
            )
            for lane, epoch in sorted(report.lanes.items())
        ]
        + [
            PeerLane(lane=lane, leader_epoch=NOT_YET, is_coming=True)
            for lane in sorted(report.coming)
        ]
        + [
            PeerLane(
                lane=lane,
                leader_epoch=NOT_YET,
                given_to_broker_id=to.broker_id,
                given_leader_epoch=to.leader_epoch,
            )
            for lane, to in sorted(report.given.items())
        ],
    )


def decoded(fields: PeerReportFields) -> PeerReport:
    served = [each for each in fields.lanes if each.leader_epoch != NOT_YET]
    return PeerReport(
        broker_id=BrokerId(fields.broker_id),
        incarnation=fields.incarnation,
        host=fields.host,
        port=fields.port,
        rack=fields.rack,
        is_draining=fields.is_draining,
        is_store_away=fields.is_store_away,
        control_number=fields.control_number,
        lanes={LaneId(each.lane): each.leader_epoch for each in served},
        cleared={LaneId(each.lane): each.cleared_number for each in served},
        coming=frozenset(LaneId(each.lane) for each in fields.lanes if each.is_coming),
        given={
            LaneId(each.lane): Leader(BrokerId(each.given_to_broker_id), each.given_leader_epoch)
            for each in fields.lanes
            if each.given_to_broker_id >= 0
        },
        awaits={
            LaneId(each.lane): BrokerId(each.awaited_broker_id)
            for each in served
            if each.awaited_broker_id >= 0
        },
    )


def encode_heard(peers: Iterable[HeardPeer]) -> list[HeardPeerFields]:
    return [
        HeardPeerFields(age_ms=int(peer.age_s * 1000), report=encoded(peer.report))
        for peer in peers
    ]


def decode_heard(fields: Iterable[HeardPeerFields]) -> list[HeardPeer]:
    return [HeardPeer(decoded(each.report), each.age_ms / 1000) for each in fields]
