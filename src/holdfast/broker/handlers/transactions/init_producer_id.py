"""InitProducerId: give a producer its id and epoch.

Without a transactional id: a new producer id with epoch 0, whatever id the producer had before, as
in Kafka. Ids come from blocks that are reserved in the control lane, so none is ever given twice.
With a transactional id: the next epoch of its producer id, which fences the previous producer. An
open transaction is aborted first, and the client asks again.
"""

import asyncio

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.lanes.leadership import coordinator_error, coordinator_problem
from holdfast.broker.topic_creation import WAIT_MS_DEFAULT, refusal_of
from holdfast.errors import HoldfastError
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from holdfast.transactions.decide import (
    AbortFirst,
    FreshIdNeeded,
    GoOn,
    ProducerIdAndEpoch,
    init_producer,
)

API = Api(
    key=ApiKey.INIT_PRODUCER_ID,
    versions=range(6),
    deviations=(
        "Waits some seconds while the previous transaction is ending. Kafka refuses at once.",
    ),
)

NO_PRODUCER = -1
FENCED_SINCE = 4
RETRY = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
"""Kafka's error while it has no block of ids. Producers try again, also idempotent ones."""


async def handle(
    broker: Broker, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse:
    if request.transactional_id == "":
        return _refused(ErrorCode.INVALID_REQUEST)
    if (request.producer_id == NO_PRODUCER) != (request.producer_epoch == NO_PRODUCER):
        return _refused(ErrorCode.INVALID_REQUEST)
    try:
        async with asyncio.timeout(WAIT_MS_DEFAULT / 1000):
            if request.transactional_id is None:
                producer = ProducerIdAndEpoch(await broker.new_producer_id(), 0)
            else:
                producer = await _transactional(broker, request, request.transactional_id)
    except TimeoutError:
        return _refused(RETRY)
    except HoldfastError as error:
        return _refused(refusal_of(error, fenced=RETRY).error)
    if isinstance(producer, ErrorCode):
        is_old = context.api_version < FENCED_SINCE
        if producer is ErrorCode.PRODUCER_FENCED and is_old:
            producer = ErrorCode.INVALID_PRODUCER_EPOCH
        return _refused(producer)
    return InitProducerIdResponse(
        producer_id=producer.producer_id, producer_epoch=producer.producer_epoch
    )


async def _transactional(
    broker: Broker, request: InitProducerIdRequest, name: str
) -> ProducerIdAndEpoch | ErrorCode:
    here = broker.transactions_of(name)
    if isinstance(here, ErrorCode):
        return here
    await here.wait_for_end(name)
    decided = await here.with_fresh_id(
        lambda fresh_id: (
            here.problem()
            or init_producer(
                here.known(name),
                name,
                request.transaction_timeout_ms,
                ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
                here.rules,
                fresh_id=fresh_id,
                now_ms=here.now_ms(),
            )
        )
    )
    if isinstance(decided, ErrorCode):
        return await coordinator_error(here.lane, decided)
    if isinstance(decided, FreshIdNeeded):
        return RETRY
    if not isinstance(decided, GoOn):
        here.decide(decided.fact)
    transaction = here.known(name)
    if transaction is None:
        return RETRY
    after = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    if isinstance(decided, AbortFirst):
        here.finish(transaction)
    problem = await here.settled(name)
    if problem is None and isinstance(decided, GoOn):
        problem = await coordinator_problem(here.lane)
    if problem is not None:
        return problem
    return ErrorCode.CONCURRENT_TRANSACTIONS if isinstance(decided, AbortFirst) else after


def _refused(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=NO_PRODUCER, producer_epoch=-1)
