"""ListGroups (16), versions 0 to 5: the groups that a broker coordinates."""

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import STRING, array, int16, int32, string
from holdfast.protocol.message import Message, Struct


class ListGroupsRequest(Message, api_key=ApiKey.LIST_GROUPS, versions="0-5", flexible="3+"):
    states_filter: list[str] = array(STRING, since=4)
    types_filter: list[str] = array(STRING, since=5)


class ListedGroup(Struct):
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string(since=4)
    group_type: str = string(since=5)


class ListGroupsResponse(Message, api_key=ApiKey.LIST_GROUPS, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
