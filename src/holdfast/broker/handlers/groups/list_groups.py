"""ListGroups: the groups that this broker coordinates."""

import asyncio

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.groups.lane_groups import CLASSIC, CONSUMER
from holdfast.groups.classic.classic_group import ClassicGroup
from holdfast.groups.consumer.consumer_group import ConsumerGroup
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.consumer_protocol import PROTOCOL_TYPE
from holdfast.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

API = Api(key=ApiKey.LIST_GROUPS, versions=range(6))

SLICE_GROUPS = 1_000
"""How many groups are looked at before other requests have their turn."""


async def handle(
    broker: Broker, request: ListGroupsRequest, context: RequestContext
) -> ListGroupsResponse:
    del context
    found = await broker.group_lists.list_groups(lambda: _all_groups(broker))
    if isinstance(found, ErrorCode):
        return ListGroupsResponse(error_code=found)
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    if not states and not types:
        return ListGroupsResponse(groups=found)
    chosen: list[ListedGroup] = []
    for start in range(0, len(found), SLICE_GROUPS):
        chosen += [
            group
            for group in found[start : start + SLICE_GROUPS]
            if (not states or group.group_state.lower() in states)
            and (not types or group.group_type in types)
        ]
        if len(found) > SLICE_GROUPS:
            await asyncio.sleep(0)
    return ListGroupsResponse(groups=chosen)


async def _all_groups(broker: Broker) -> list[ListedGroup] | ErrorCode:
    found: list[ListedGroup] = []
    for groups in list(broker.groups.values()):
        problem = groups.problem()
        if problem is not None:
            return problem
        here = [*groups.coordinator.classic_groups(), *groups.coordinator.consumer_groups()]
        for start in range(0, len(here), SLICE_GROUPS):
            found += map(_listed, here[start : start + SLICE_GROUPS])
            if len(here) > SLICE_GROUPS:
                await asyncio.sleep(0)
    return found


def _listed(group: ClassicGroup | ConsumerGroup) -> ListedGroup:
    return _classic(group) if isinstance(group, ClassicGroup) else _consumer(group)


def _classic(group: ClassicGroup) -> ListedGroup:
    generation = group.generation
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=generation.protocol_type if generation is not None else "",
        group_state=group.phase.value,
        group_type=CLASSIC,
    )


def _consumer(group: ConsumerGroup) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=PROTOCOL_TYPE,
        group_state=group.phase.value,
        group_type=CONSUMER,
    )
