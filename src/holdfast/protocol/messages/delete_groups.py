"""DeleteGroups (42), versions 0 to 2: remove groups."""

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import STRING, array, int16, int32, string
from holdfast.protocol.message import Message, Struct


class DeleteGroupsRequest(Message, api_key=ApiKey.DELETE_GROUPS, versions="0-2", flexible="2+"):
    groups_names: list[str] = array(STRING)


class DeletableGroupResult(Struct):
    group_id: str = string()
    error_code: int = int16()


class DeleteGroupsResponse(Message, api_key=ApiKey.DELETE_GROUPS, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
