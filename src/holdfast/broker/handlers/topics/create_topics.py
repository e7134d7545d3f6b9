"""CreateTopics: create topics.

The response leaves once the object that creates the topics is in the store. Assignments are ignored
because brokers share out the lanes themselves.
"""

import dataclasses
from collections import Counter

from holdfast.broker.api import Api, ToController
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.topic_creation import control_durable, controller_refusal
from holdfast.cluster.configs import shown_configs
from holdfast.cluster.facts import TopicCreated
from holdfast.cluster.topics import PARTITIONS_MAX, decide_create
from holdfast.protocol.api import ApiKey, ErrorCode, Refused
from holdfast.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from holdfast.protocol.primitives import ZERO_UUID

API = Api(
    key=ApiKey.CREATE_TOPICS,
    versions=range(2, 8),
    deviations=(
        "Any replication factor is accepted, even by one broker, and the response says 1,"
        " because the store replicates (ADR 15).",
        "A manual assignment is checked and then ignored.",
        "With validate_only the response has no topic id.",
    ),
    forward_to=ToController(),
)

REPLICATION_FACTOR = 1


@dataclasses.dataclass(frozen=True, slots=True)
class _Shape:
    """The number of partitions and the replication factor of a new topic."""

    partitions: int
    replication_factor: int


async def handle(
    broker: Broker, request: CreateTopicsRequest, context: RequestContext
) -> CreateTopicsResponse:
    del context
    times = Counter(topic.name for topic in request.topics)
    decided: dict[str, TopicCreated | Refused] = {}
    too_many = _too_many_partitions(broker, request)
    for topic in request.topics:
        if times[topic.name] > 1:
            decided[topic.name] = Refused(
                ErrorCode.INVALID_REQUEST,
                f"Duplicate topic name: {topic.name} is {times[topic.name]} times in the request",
            )
            continue
        fact = too_many or _decide(broker, topic)
        decided[topic.name] = fact
        if isinstance(fact, TopicCreated) and not request.validate_only:
            broker.control.add(fact)
    if not request.validate_only:
        failed = await control_durable(broker, request.timeout_ms)
        if failed is not None:
            decided = {
                name: failed if _hangs_on_the_store(fact) else fact
                for name, fact in decided.items()
            }
    return CreateTopicsResponse(
        topics=[
            _refused(name, fact)
            if isinstance(fact, Refused)
            else _created(fact, is_real=not request.validate_only)
            for name, fact in decided.items()
        ]
    )


def _hangs_on_the_store(fact: TopicCreated | Refused) -> bool:
    """True if the response holds only once everything decided is durable.

    A topic that already exists may have been decided a moment ago, without being durable yet.
    """
    return isinstance(fact, TopicCreated) or fact.error is ErrorCode.TOPIC_ALREADY_EXISTS


def _too_many_partitions(broker: Broker, request: CreateTopicsRequest) -> Refused | None:
    total = sum(
        len(topic.assignments)
        or (broker.settings.num_partitions if topic.num_partitions == -1 else topic.num_partitions)
        for topic in request.topics
    )
    if total <= PARTITIONS_MAX:
        return None
    return Refused(
        ErrorCode.POLICY_VIOLATION,
        f"Excessively large number of partitions per request: {total}; at most {PARTITIONS_MAX}",
    )


def _decide(broker: Broker, topic: CreatableTopic) -> TopicCreated | Refused:
    refused = controller_refusal(broker)
    if refused is not None:
        return refused
    shape = _shape(broker, topic)
    if isinstance(shape, Refused):
        return shape
    return decide_create(
        broker.state,
        topic_id=broker.environment.new_uuid(),
        name=topic.name,
        partitions=shape.partitions,
        replication_factor=shape.replication_factor,
        configs={config.name: config.value for config in topic.configs},
    )


def _shape(broker: Broker, topic: CreatableTopic) -> _Shape | Refused:
    """Return the shape from the counts, or from a manual assignment, never from both."""
    if not topic.assignments:
        wanted = topic.num_partitions
        default = broker.settings.num_partitions
        return _Shape(default if wanted == -1 else wanted, topic.replication_factor)
    if topic.replication_factor != -1 or topic.num_partitions != -1:
        return Refused(
            ErrorCode.INVALID_REQUEST,
            f"topic {topic.name}: a manual assignment was given, so the number of partitions"
            f" ({topic.num_partitions}) and the replication factor ({topic.replication_factor})"
            " must both be -1",
        )
    count = len(topic.assignments)
    if {a.partition_index for a in topic.assignments} != set(range(count)):
        return Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"topic {topic.name}: {count} partitions were assigned; their numbers must be 0 to"
            f" {count - 1}, each once",
        )
    replicas = [assignment.broker_ids for assignment in topic.assignments]
    problem = assignment_problem(broker, replicas)
    if problem is not None:
        return Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"topic {topic.name}: {problem}")
    return _Shape(count, REPLICATION_FACTOR)


def assignment_problem(broker: Broker, replicas: list[list[int]]) -> str | None:
    """Return the problem of the brokers that a client chose for partitions, by Kafka's rules."""
    for broker_ids in replicas:
        shown = f"a partition is assigned to brokers {broker_ids[:10]}"
        if not broker_ids:
            return f"{shown}; name at least one broker"
        if len(set(broker_ids)) != len(broker_ids):
            return f"{shown}; name each broker once"
        if len(broker_ids) != len(replicas[0]):
            return (
                f"{shown}, and another one to {len(replicas[0])} brokers; all partitions need the"
                " same number"
            )
        unknown = [each for each in broker_ids if each not in broker.state.brokers]
        if unknown:
            return f"{shown}; broker {unknown[0]} is not registered"
    return None


def _refused(name: str, refused: Refused) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name,
        topic_id=ZERO_UUID,
        error_code=refused.error,
        error_message=refused.message,
    )


def _created(fact: TopicCreated, *, is_real: bool) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=fact.name,
        topic_id=fact.topic_id if is_real else ZERO_UUID,
        num_partitions=len(fact.lanes),
        replication_factor=REPLICATION_FACTOR,
        configs=[
            CreatableTopicConfigs(
                name=shown.definition.name, value=shown.value, config_source=shown.source
            )
            for shown in shown_configs(fact.configs)
        ],
    )
