"""DescribeGroups: the state and the members of classic groups."""

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.operations import GROUP_OPERATIONS
from holdfast.groups.classic.classic_group import ClassicGroup, GroupPhase
from holdfast.groups.classic.generation import metadata_of
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

API = Api(
    key=ApiKey.DESCRIBE_GROUPS,
    versions=range(7),
    deviations=(
        "An extra tagged field counts the commits that this coordinator has refused since it"
        " took over, because another member owned the partition.",
    ),
)

DEAD = "Dead"
NOT_FOUND_SINCE = 6


def handle(
    broker: Broker, request: DescribeGroupsRequest, context: RequestContext
) -> DescribeGroupsResponse:
    groups = [_described(broker, group_id, context.api_version) for group_id in request.groups]
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = GROUP_OPERATIONS
    return DescribeGroupsResponse(groups=groups)


def _described(broker: Broker, group_id: str, version: int) -> DescribedGroup:
    groups = broker.groups_of(group_id)
    if isinstance(groups, ErrorCode):
        return DescribedGroup(error_code=groups, group_id=group_id)
    problem = groups.problem()
    if problem is not None:
        return DescribedGroup(error_code=problem, group_id=group_id)
    group = groups.coordinator.classic(group_id)
    if group is None:
        is_told = version >= NOT_FOUND_SINCE
        return DescribedGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND if is_told else ErrorCode.NONE,
            error_message=f"Group {group_id} not found." if is_told else None,
            group_id=group_id,
            group_state=DEAD,
        )
    described = _classic(group)
    described.holdfast_refused_commits = groups.coordinator.refused_commits.get(group_id, 0)
    return described


def _classic(group: ClassicGroup) -> DescribedGroup:
    generation = group.generation
    is_stable = group.phase is GroupPhase.STABLE
    protocol = generation.protocol_name if generation is not None and is_stable else None
    assignments = (generation.assignments if generation is not None else None) or {}
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.phase.value,
        protocol_type=generation.protocol_type if generation is not None else "",
        protocol_data=protocol or "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=metadata_of(member, protocol) if is_stable else b"",
                member_assignment=assignments.get(member.member_id, b"") if is_stable else b"",
            )
            for member in group.members().values()
        ],
    )
