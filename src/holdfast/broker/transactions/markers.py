"""Write the marker that ends a transaction into a partition of a lane that this broker owns.

Owns the step from a decided marker to the lane's open group: offset and leader epoch are stamped as
for a produced batch. Must never decide that a transaction ends: its coordinator decides that. A
coordinator lets the next transaction of a producer begin only when every marker of the last one is
durable.
"""

from holdfast.identifiers import PartitionId
from holdfast.log.append import MarkerAccepted, decide_marker
from holdfast.log.data_lane import DataLane
from holdfast.protocol.api import Refused
from holdfast.records.stamp import stamp


def add_marker(
    lane: DataLane,
    partition: PartitionId,
    *,
    producer_id: int,
    producer_epoch: int,
    committed: bool,
    coordinator_epoch: int,
    now_ms: int,
) -> Refused | None:
    """End a transaction on one partition, in the lane's next object. This is safe to repeat."""
    decision = decide_marker(
        lane.log_of(partition),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        committed=committed,
        coordinator_epoch=coordinator_epoch,
        now_ms=now_ms,
    )
    if isinstance(decision, Refused):
        return decision
    if isinstance(decision, MarkerAccepted):
        fact, record_batch = decision.fact, decision.record_batch
        stamp(record_batch, base_offset=fact.base_offset, leader_epoch=lane.leader_epoch)
        lane.add(fact, record_batch)
    return None
