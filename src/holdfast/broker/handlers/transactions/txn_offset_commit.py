"""TxnOffsetCommit: commit offsets that count when the transaction commits.

Since version 5 (KIP-890) this adds the group to the transaction. Before, AddOffsetsToTxn must have
done so. OffsetCommit's rule about partitions of other members holds here too. The error here is
ILLEGAL_GENERATION instead of STALE_MEMBER_EPOCH: the client can abort its transaction and continue,
while STALE_MEMBER_EPOCH would make its producer fail for good.
"""

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.groups.lane_groups import LaneGroups
from holdfast.broker.handlers.groups.offset_commit import asked_offsets
from holdfast.broker.lanes.leadership import coordinator_error, coordinator_problem
from holdfast.broker.transactions.joining import group_problem
from holdfast.groups.commits import NOT_OWNED
from holdfast.groups.coordinator import Committer
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from holdfast.transactions.decide import ProducerIdAndEpoch, verify_group

API = Api(
    key=ApiKey.TXN_OFFSET_COMMIT,
    versions=range(6),
    deviations=(
        "Waits some seconds while the previous transaction is ending. Kafka refuses at once.",
        "If the request names its member, a partition that is now assigned to another member is"
        " refused with ILLEGAL_GENERATION, for that partition only. The producer can abort and"
        " continue.",
        "Before version 5 the group must already be in the transaction, and the broker verifies"
        " that. While the transaction's coordinator does not answer, the error is"
        " COORDINATOR_LOAD_IN_PROGRESS.",
    ),
)

ADDS_GROUP_SINCE = 5
IN_TRANSACTION = {ErrorCode.STALE_MEMBER_EPOCH: ErrorCode.ILLEGAL_GENERATION}
"""Replacements of errors, as in Kafka: producers abort and go on after ILLEGAL_GENERATION, and know
no other error of this kind."""


async def handle(
    broker: Broker, request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse:
    problem = await _verified(broker, request, context.api_version)
    errors: list[ErrorCode] = []
    if problem is None:
        groups = broker.groups_of(request.group_id)
        if isinstance(groups, ErrorCode):
            return _response(request, errors, groups)
        judged = groups.problem() or groups.coordinator.commit(
            request.group_id,
            Committer(
                request.member_id,
                request.group_instance_id,
                request.generation_id,
                request.producer_id,
                request.producer_epoch,
            ),
            [
                item
                for topic in request.topics
                for item in asked_offsets(
                    broker.state.topic_named(topic.name), topic.name, topic.partitions
                )
            ],
            groups.now(),
        )
        if isinstance(judged, ErrorCode):
            problem = await coordinator_error(groups.lane, judged)
        else:
            errors = judged.errors
            told = NOT_OWNED if judged.refused_as_not_owned else ErrorCode.NONE
            problem = await groups.vouched(request.group_id, told)
    return _response(request, errors, problem)


async def _verified(
    broker: Broker, request: TxnOffsetCommitRequest, version: int
) -> ErrorCode | None:
    """Return the error unless the group is in the transaction durably, before its offsets are.

    Otherwise a coordinator that takes over would not know that the group must hear the outcome.
    """
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    name = request.transactional_id
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    here = broker.transactions_of(name)
    if isinstance(here, ErrorCode):
        verify_only = version < ADDS_GROUP_SINCE
        return await group_problem(
            broker, name, producer, request.group_id, verify_only=verify_only
        )
    await here.wait_for_end(name)
    if version >= ADDS_GROUP_SINCE:
        problem = here.extend(name, producer, groups=[request.group_id])
    else:
        problem = here.problem() or verify_group(here.known(name), producer, request.group_id)
    if problem is not None:
        return await coordinator_error(here.lane, problem)
    groups = broker.groups_of(request.group_id)
    if isinstance(groups, LaneGroups) and groups.lane is here.lane:
        return None  # in one lane, an earlier decision is durable earlier
    problem = await here.settled(name) or await coordinator_problem(here.lane)
    if problem is not None:
        return problem
    # The transaction may have ended during the wait. Nobody would end offsets that come after that.
    problem = here.problem() or verify_group(here.known(name), producer, request.group_id)
    return await coordinator_error(here.lane, problem) if problem is not None else None


def _response(
    request: TxnOffsetCommitRequest, errors: list[ErrorCode], problem: ErrorCode | None
) -> TxnOffsetCommitResponse:
    told = [IN_TRANSACTION.get(error, error) for error in errors]
    if problem is not None:
        problem = IN_TRANSACTION.get(problem, problem)
    each = iter(told)
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=part.partition_index,
                        error_code=problem if problem is not None else next(each),
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
