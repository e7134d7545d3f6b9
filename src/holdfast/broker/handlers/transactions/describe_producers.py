"""DescribeProducers: the producers that a partition remembers.

Each is shown with the start of its open transaction.
"""

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.lanes.leadership import offline_problem, prove_claim
from holdfast.log.partition import PartitionLog
from holdfast.protocol.api import ApiKey
from holdfast.protocol.messages.describe_producers import (
    ActiveProducer,
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicResponse,
)

API = Api(
    key=ApiKey.DESCRIBE_PRODUCERS,
    versions=range(1),
    deviations=("Only the proved owner answers.",),
)

NONE = -1


async def handle(
    broker: Broker, request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    del context
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    await _describe(broker, topic.name, partition)
                    for partition in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


async def _describe(broker: Broker, name: str, partition: int) -> PartitionResponse:
    topic = broker.state.topic_named(name)
    led = broker.led(topic, partition)
    error = await prove_claim(led.lane) if led is not None else None
    if led is not None and error is None:
        error = offline_problem(led.lane, led.partition)
    if led is None or error is not None:
        return PartitionResponse(
            partition_index=partition,
            error_code=error or broker.not_led(topic, partition),
            error_message=f"{name[:249]}-{partition}",
        )
    return PartitionResponse(
        partition_index=partition, active_producers=active_producers(led.lane.log_of(led.partition))
    )


def active_producers(log: PartitionLog) -> list[ActiveProducer]:
    """Return the producers for the response, by producer id."""
    found: list[ActiveProducer] = []
    for producer_id, producer in sorted(log.producers.items()):
        transaction = log.transactions.open.get(producer_id)
        found.append(
            ActiveProducer(
                producer_id=producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.batches[-1].last_sequence if producer.batches else NONE,
                last_timestamp=producer.last_ms,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=transaction.first_offset if transaction else NONE,
            )
        )
    return found
