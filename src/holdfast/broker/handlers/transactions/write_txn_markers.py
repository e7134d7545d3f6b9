"""WriteTxnMarkers: an administrator aborts a hanging transaction.

Admin.abortTransaction and kafka-transactions.sh send this. Markers of coordinators never come this
way: they are facts in the lanes. All brokers are asked because any of them may be the coordinator.
"""

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.cluster.directory import Led
from holdfast.broker.context import RequestContext
from holdfast.broker.lanes.leadership import offline_problem, prove_claim
from holdfast.broker.topic_creation import WAIT_MS_DEFAULT, durable
from holdfast.broker.transactions.aborting import abort_anywhere
from holdfast.broker.transactions.markers import add_marker
from holdfast.log.transactions import OpenTransaction
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from holdfast.transactions.decide import ProducerIdAndEpoch

API = Api(
    key=ApiKey.WRITE_TXN_MARKERS,
    versions=range(1, 3),
    deviations=(
        "It serves only Admin.abortTransaction. Commit markers are refused with INVALID_REQUEST.",
        "A transaction that its coordinator still has open is aborted on all its partitions,"
        " not on one, and its producer is fenced.",
        "A transaction that is ending gets CONCURRENT_TRANSACTIONS.",
        "All brokers are asked. While one does not answer, the error is COORDINATOR_NOT_AVAILABLE.",
    ),
)


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
    known = broker.state.topic_named(topic)
    led = broker.led(known, number)
    if led is None:
        return broker.not_led(known, number)
    offline = offline_problem(led.lane, led.partition)
    if offline is not None:
        return offline
    unproven = await prove_claim(led.lane)
    if unproven is not None:
        return unproven
    # A transaction that opens later is not the one that the administrator saw, and coordinators are
    # not asked about it.
    hanging = led.lane.log_of(led.partition).transactions.open.get(marker.producer_id)
    producer = ProducerIdAndEpoch(marker.producer_id, marker.producer_epoch)
    outcome = await abort_anywhere(broker, producer, led.partition)
    return outcome if outcome is not None else await _end_alone(broker, led, marker, hanging)


async def _end_alone(
    broker: Broker, led: Led, marker: WritableTxnMarker, hanging: OpenTransaction | None
) -> int:
    if not led.lane.is_open:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    found = led.lane.log_of(led.partition).transactions.open.get(marker.producer_id)
    if found != hanging:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if found is not None:
        broker.underway.ended(marker.producer_id, led.partition)
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
            return refused.error
    failed = await durable(led.lane, WAIT_MS_DEFAULT, fenced=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return failed.error if failed is not None else ErrorCode.NONE
