"""DeleteTopics (20), versions 1 to 6: remove topics, by name or by id."""

from uuid import UUID

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import STRING, array, int16, int32, nullable_string, uuid
from holdfast.protocol.message import Message, Struct


class DeleteTopicState(Struct):
    name: str | None = nullable_string()
    topic_id: UUID = uuid()


class DeleteTopicsRequest(Message, api_key=ApiKey.DELETE_TOPICS, versions="1-6", flexible="4+"):
    topics: list[DeleteTopicState] = array(DeleteTopicState, since=6)
    topic_names: list[str] = array(STRING, until=5)
    timeout_ms: int = int32()


class DeletableTopicResult(Struct):
    name: str | None = nullable_string(default="", nullable_since=6)
    topic_id: UUID = uuid(since=6)
    error_code: int = int16()
    error_message: str | None = nullable_string(since=5)


class DeleteTopicsResponse(Message, api_key=ApiKey.DELETE_TOPICS, versions="1-6", flexible="4+"):
    throttle_time_ms: int = int32()
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
