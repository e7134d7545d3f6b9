"""CreatePartitions: add partitions to topics.

New partitions can be used once the object that adds them is in the store. Assignments are ignored
because brokers share out the lanes themselves.
"""

from collections import Counter

from holdfast.broker.api import Api, ToController
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.handlers.topics.create_topics import assignment_problem
from holdfast.broker.topic_creation import control_durable, controller_refusal
from holdfast.cluster.facts import PartitionsAdded
from holdfast.cluster.topics import PARTITIONS_MAX, decide_partitions
from holdfast.protocol.api import ApiKey, ErrorCode, Refused
from holdfast.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

API = Api(
    key=ApiKey.CREATE_PARTITIONS,
    versions=range(4),
    deviations=(
        "A manual assignment is checked and then ignored. An empty list of assignments counts"
        " as none.",
    ),
    forward_to=ToController(),
)


async def handle(
    broker: Broker, request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    del context
    times = Counter(topic.name for topic in request.topics)
    decided: dict[str, Refused | None] = {}
    added = 0
    for topic in request.topics:
        if times[topic.name] > 1:
            decided[topic.name] = Refused(
                ErrorCode.INVALID_REQUEST,
                f"Duplicate topic name: {topic.name} is {times[topic.name]} times in the request",
            )
            continue
        fact = _decide(broker, topic, added)
        decided[topic.name] = fact if isinstance(fact, Refused) else None
        if isinstance(fact, PartitionsAdded):
            added += len(fact.lanes)
            if not request.validate_only:
                broker.control.add(fact)
    failed = None
    if not request.validate_only:
        failed = await control_durable(broker, request.timeout_ms)
    return CreatePartitionsResponse(
        results=[_result(name, refused or failed) for name, refused in decided.items()]
    )


def _decide(
    broker: Broker, topic: CreatePartitionsTopic, added_before: int
) -> PartitionsAdded | Refused:
    refused = controller_refusal(broker)
    if refused is not None:
        return refused
    known = broker.state.topic_named(topic.name)
    if known is None:
        return Refused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic.name[:249]!r}"
        )
    fact = decide_partitions(broker.state, known, topic.count)
    if isinstance(fact, Refused):
        return fact
    new = len(fact.lanes)
    if added_before > 0 and added_before + new > PARTITIONS_MAX:
        return Refused(
            ErrorCode.POLICY_VIOLATION,
            f"topic {topic.name}: the request adds {added_before + new} partitions so far; at most"
            f" {PARTITIONS_MAX} are possible in one request",
        )
    if topic.assignments and len(topic.assignments) != new:
        return Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"topic {topic.name}: the request adds {new} partitions, but assigns"
            f" {len(topic.assignments)}",
        )
    replicas = [assignment.broker_ids for assignment in topic.assignments or ()]
    problem = assignment_problem(broker, replicas)
    if problem is not None:
        return Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"topic {topic.name}: {problem}")
    return fact


def _result(name: str, refused: Refused | None) -> CreatePartitionsTopicResult:
    if refused is None:
        return CreatePartitionsTopicResult(name=name)
    return CreatePartitionsTopicResult(
        name=name, error_code=refused.error, error_message=refused.message
    )
