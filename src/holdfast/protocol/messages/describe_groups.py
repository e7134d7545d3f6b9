"""DescribeGroups (15), versions 0 to 6: state and members of classic groups."""

from holdfast.protocol.api import ApiKey
from holdfast.protocol.fields import (
    STRING,
    array,
    boolean,
    int16,
    int32,
    int64,
    nullable_string,
    octets,
    string,
)
from holdfast.protocol.message import Message, Struct

HOLDFAST_TAG = 10_000
"""The tag of a field that only Holdfast has; other clients skip tags that they do not know."""


class DescribeGroupsRequest(Message, api_key=ApiKey.DESCRIBE_GROUPS, versions="0-6", flexible="5+"):
    groups: list[str] = array(STRING)
    include_authorized_operations: bool = boolean(since=3)


class DescribedGroupMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = nullable_string(since=4)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = octets()
    member_assignment: bytes = octets()


class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = nullable_string(since=6)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32(default=-2147483648, since=3)
    holdfast_refused_commits: int = int64(since=5, tag=HOLDFAST_TAG)


class DescribeGroupsResponse(
    Message, api_key=ApiKey.DESCRIBE_GROUPS, versions="0-6", flexible="5+"
):
    throttle_time_ms: int = int32(since=1)
    groups: list[DescribedGroup] = array(DescribedGroup)
