"""DeleteTopics: delete topics.

A topic is gone for every client as soon as its deletion is decided. The response leaves once the
deletion is in the store. The topic's partitions leave their lanes later, in the background.
"""

from collections import Counter
from uuid import UUID

from holdfast.broker.api import Api, ToController
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.topic_creation import control_durable, controller_refusal
from holdfast.cluster.facts import TopicDeleted
from holdfast.cluster.state import Topic
from holdfast.protocol.api import ApiKey, ErrorCode, Refused
from holdfast.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from holdfast.protocol.primitives import ZERO_UUID

API = Api(key=ApiKey.DELETE_TOPICS, versions=range(1, 7), forward_to=ToController())


async def handle(
    broker: Broker, request: DeleteTopicsRequest, context: RequestContext
) -> DeleteTopicsResponse:
    if context.api_version >= 6:
        asked = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        asked = [(name, ZERO_UUID) for name in request.topic_names]
    times = Counter(asked)
    decided = {
        (name, topic_id): _find(broker, name, topic_id, times[name, topic_id])
        for name, topic_id in times
    }
    found = Counter(topic.topic_id for topic in decided.values() if isinstance(topic, Topic))
    for key, topic in decided.items():
        if isinstance(topic, Topic) and found[topic.topic_id] > 1:
            decided[key] = Refused(
                ErrorCode.INVALID_REQUEST,
                f"topic {topic.name} and topic id {topic.topic_id} are the same; name it once",
            )
    for topic in decided.values():
        if isinstance(topic, Topic):
            broker.control.add(TopicDeleted(topic.topic_id))
    failed = await control_durable(broker, request.timeout_ms)
    return DeleteTopicsResponse(
        responses=[
            _result(name, topic_id, failed or topic if isinstance(topic, Topic) else topic)
            for (name, topic_id), topic in decided.items()
        ]
    )


def _find(broker: Broker, name: str | None, topic_id: UUID, times: int) -> Topic | Refused:
    refused = controller_refusal(broker)
    if refused is not None:
        return refused
    if name is None and topic_id == ZERO_UUID:
        return Refused(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if name is not None and topic_id != ZERO_UUID:
        return Refused(
            ErrorCode.INVALID_REQUEST,
            f"You may not specify both topic name ({name[:249]}) and topic id ({topic_id}).",
        )
    if times > 1:
        what = f"name: {name[:249]}" if name is not None else f"id: {topic_id}"
        return Refused(
            ErrorCode.INVALID_REQUEST, f"Duplicate topic {what} is {times} times in the request"
        )
    if name is not None:
        return broker.state.topic_named(name) or Refused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name[:249]!r}"
        )
    return broker.state.usable(topic_id) or Refused(
        ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {topic_id}"
    )


def _result(name: str | None, topic_id: UUID, decided: Topic | Refused) -> DeletableTopicResult:
    if isinstance(decided, Topic):
        return DeletableTopicResult(name=decided.name, topic_id=decided.topic_id)
    return DeletableTopicResult(
        name=name,
        topic_id=topic_id,
        error_code=decided.error,
        error_message=decided.message,
    )
