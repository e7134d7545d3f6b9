"""WriteTxnMarkers (27), versions 1 to 2: an administrator aborts a hanging transaction.

As Admin.abortTransaction and kafka-transactions.sh ask for it. Markers of coordinators never come
this way: they are facts in the lanes. Deviations: a transaction that its coordinator still has open
is aborted everywhere, and its producer fenced, instead of on one partition; one that is ending is
CONCURRENT_TRANSACTIONS; commits are refused with INVALID_REQUEST.
"""

from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext, error_code
from holdfast.broker.directory import Led
from holdfast.broker.leadership import offline_problem, prove_claim
from holdfast.broker.markers import add_marker
from holdfast.broker.topic_creation import WAIT_MS_DEFAULT, durable
from holdfast.broker.transactions import LaneTransactions
from holdfast.protocol.api import ErrorCode
from holdfast.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from holdfast.transactions.decide import Producer
from holdfast.transactions.hanging import AbortOf, judge_abort, transaction_of
from holdfast.transactions.state import Transaction


async def handle(
    broker: Broker, request: WriteTxnMarkersRequest, context: RequestContext
) -> WriteTxnMarkersResponse:
    del context
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=number,
                                error_code=await _abort(broker, marker, topic.name, number),
                            )
                            for number in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


async def _abort(broker: Broker, marker: WritableTxnMarker, topic: str, number: int) -> int:
    if marker.transaction_result:
        return ErrorCode.INVALID_REQUEST
    led = broker.led(broker.state.topic_named(topic), number)
    if led is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    offline = offline_problem(led.lane, led.partition)
    if offline is not None:
        return offline
    for lane in list(broker.lanes.values()):
        unproven = await prove_claim(lane)  # else a newer coordinator may have it open
        if unproven is not None:
            return unproven
    found = _coordinator_of(broker, led, marker.producer_id)
    known = found[1] if found is not None else None
    judged = judge_abort(known, Producer(marker.producer_id, marker.producer_epoch))
    if isinstance(judged, ErrorCode):
        return judged
    if judged is AbortOf.WHOLE_TRANSACTION and found is not None:
        here, transaction = found
        name = transaction.transactional_id
        if not await here.abort_open(name, marker.producer_epoch):
            return ErrorCode.CONCURRENT_TRANSACTIONS
        problem = await here.settled(name)
        await here.wait_for_end(name)
        return problem or ErrorCode.NONE
    return await _end_alone(broker, led, marker)


def _coordinator_of(
    broker: Broker, led: Led, producer_id: int
) -> tuple[LaneTransactions, Transaction] | None:
    for here in broker.transactions.values():
        known = transaction_of(here.all(), producer_id, led.partition)
        if known is not None:
            return here, known
    return None


async def _end_alone(broker: Broker, led: Led, marker: WritableTxnMarker) -> int:
    log = led.lane.log_of(led.partition)
    if marker.producer_id in log.transactions.open:
        refused = add_marker(
            led.lane,
            led.partition,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            committed=False,
            coordinator_epoch=marker.coordinator_epoch,
            now_ms=broker.environment.now_ms(),
        )
        if refused is not None:
            return error_code(refused.error)
    failed = await durable(led.lane, WAIT_MS_DEFAULT, fenced="NOT_LEADER_OR_FOLLOWER")
    return error_code(failed.error) if failed is not None else ErrorCode.NONE
