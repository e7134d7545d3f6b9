"""AddPartitionsToTxn: add partitions to a transaction.

Clients send it up to version 3. With KIP-890 the first batch of a transaction to a partition adds
the partition instead. If one partition does not exist, none is added, as in Kafka.
"""

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.lanes.leadership import coordinator_error
from holdfast.broker.transactions.lane_transactions import LaneTransactions
from holdfast.identifiers import PartitionId
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from holdfast.transactions.decide import ProducerIdAndEpoch, verify

API = Api(
    key=ApiKey.ADD_PARTITIONS_TO_TXN,
    versions=range(6),
    deviations=(
        "Waits some seconds while the previous transaction is ending. Kafka refuses at once.",
    ),
)

BATCHED_SINCE = 4
FENCED_SINCE = 2


async def handle(
    broker: Broker, request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    version = context.api_version
    if version >= BATCHED_SINCE:
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=asked.transactional_id,
                    topic_results=await _add(broker, asked, version),
                )
                for asked in request.transactions
            ]
        )
    asked = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        verify_only=False,
        topics=request.v3_and_below_topics,
    )
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=await _add(broker, asked, version)
    )


async def _add(
    broker: Broker, asked: AddPartitionsToTxnTransaction, version: int
) -> list[AddPartitionsToTxnTopicResult]:
    found = {
        (topic.name, index): _partition(broker, topic, index)
        for topic in asked.topics
        for index in topic.partitions
    }
    known = [partition for partition in found.values() if partition is not None]
    here = broker.transactions_of(asked.transactional_id)
    if isinstance(here, ErrorCode):
        errors = dict.fromkeys(found, here)
    elif len(known) < len(found):
        errors = {
            where: ErrorCode.OPERATION_NOT_ATTEMPTED
            if partition is not None
            else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for where, partition in found.items()
        }
    elif asked.verify_only:
        errors = {
            where: _verified(here, asked, partition)
            for where, partition in found.items()
            if partition is not None
        }
    else:
        error = await coordinator_error(here.lane, await _extended(here, asked, known))
        errors = dict.fromkeys(found, error)
    return [_result(topic, errors, version) for topic in asked.topics]


def _partition(broker: Broker, topic: AddPartitionsToTxnTopic, index: int) -> PartitionId | None:
    known = broker.state.topic_named(topic.name)
    if known is None or known.lane_of(index) is None:
        return None
    return PartitionId(known.topic_id, index)


def _verified(
    here: LaneTransactions, asked: AddPartitionsToTxnTransaction, partition: PartitionId
) -> ErrorCode:
    producer = ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch)
    problem = here.problem() or verify(here.known(asked.transactional_id), producer, partition)
    return problem if problem is not None else ErrorCode.NONE


async def _extended(
    here: LaneTransactions, asked: AddPartitionsToTxnTransaction, partitions: list[PartitionId]
) -> ErrorCode:
    if not asked.transactional_id:
        return ErrorCode.INVALID_REQUEST
    await here.wait_for_end(asked.transactional_id)
    producer = ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch)
    problem = here.extend(asked.transactional_id, producer, partitions=partitions)
    return problem or await here.settled(asked.transactional_id) or ErrorCode.NONE


def _result(
    topic: AddPartitionsToTxnTopic, errors: dict[tuple[str, int], ErrorCode], version: int
) -> AddPartitionsToTxnTopicResult:
    results: list[AddPartitionsToTxnPartitionResult] = []
    for index in topic.partitions:
        error = errors[topic.name, index]
        if error is ErrorCode.PRODUCER_FENCED and version < FENCED_SINCE:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        results.append(
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
        )
    return AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=results)
