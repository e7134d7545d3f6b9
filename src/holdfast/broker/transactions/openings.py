"""The batches of a produce request that would open a transaction on a partition of this broker.

Owns the wait before these batches are decided, if their coordinator is on this broker.
"""

import asyncio
from collections.abc import Iterator

from holdfast.broker.broker import Broker
from holdfast.broker.cluster.directory import Led
from holdfast.broker.context import RequestContext
from holdfast.broker.lanes.leadership import prove_claim
from holdfast.broker.settling import then
from holdfast.broker.transactions.joining import Opening
from holdfast.broker.transactions.lane_transactions import ENDING_WAIT_S, LaneTransactions
from holdfast.broker.transactions.verification import TransactionalAppend
from holdfast.cluster.state import Topic
from holdfast.errors import CorruptObject
from holdfast.log.append import opens_transaction
from holdfast.protocol.messages.produce import ProduceRequest, TopicProduceData
from holdfast.records.batch import BatchHeader, parse_header

TOPIC_IDS_SINCE = 13
"""The first version of Produce that names topics by id."""


def topic_of(broker: Broker, data: TopicProduceData, context: RequestContext) -> Topic | None:
    if context.api_version >= TOPIC_IDS_SINCE:
        return broker.state.usable(data.topic_id)
    return broker.state.topic_named(data.name)


def opening_of(header: BatchHeader, led: Led, context: RequestContext, name: str | None) -> Opening:
    append = TransactionalAppend(
        transactional_id=name,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        partition=led.partition,
        api_version=context.api_version,
    )
    return Opening(append, led.lane)


def openings(
    broker: Broker, request: ProduceRequest, context: RequestContext, name: str
) -> Iterator[Opening]:
    """Yield the batches of a request that would open a transaction here."""
    for topic in request.topic_data:
        known = topic_of(broker, topic, context)
        for part in topic.partition_data:
            led = broker.led(known, part.index)
            header = _header_of(part.records) if led is not None else None
            if led is None or header is None or led.lane.is_offline(led.partition):
                continue
            if opens_transaction(led.lane.log_of(led.partition), header):
                yield opening_of(header, led, context, name)


def _header_of(records: memoryview | bytes | None) -> BatchHeader | None:
    """Return the batch header, or None if there is no valid one. The checks report that later."""
    try:
        return parse_header(records) if records else None
    except CorruptObject:
        return None


def coordinator_barrier(
    broker: Broker,
    request: ProduceRequest,
    context: RequestContext,
    name: str,
    here: LaneTransactions,
) -> asyncio.Future[None] | None:
    """Return the future to wait for before these batches are decided, or None if there is no wait.

    If the coordinator's lane is not the partition's lane, the coordinator must first know durably
    of the partition, and its claim must be proved. In one lane, an earlier decision is durable
    earlier.
    """
    ending = here.ending(name)
    if ending is not None:
        return then(ending, lambda _: None, timeout_s=ENDING_WAIT_S)
    elsewhere = False
    for opening in openings(broker, request, context, name):
        if opening.lane is not here.lane:
            elsewhere = True
            broker.verify_transaction(opening.append)
    if not elsewhere:
        return None
    barrier = here.barrier(name)
    if barrier is not None or here.lane.is_valid():
        return barrier
    proof = asyncio.ensure_future(prove_claim(here.lane))
    return then(proof, lambda _: None)
