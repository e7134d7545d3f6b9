"""ListGroups (16), versions 0 to 5."""

from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.groups import CLASSIC, CONSUMER
from holdfast.groups.classic import ClassicGroup
from holdfast.groups.consumer import ConsumerGroup
from holdfast.protocol.consumer_protocol import PROTOCOL_TYPE
from holdfast.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)


def handle(
    broker: Broker, request: ListGroupsRequest, context: RequestContext
) -> ListGroupsResponse:
    del context
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    found: list[ListedGroup] = []
    for groups in broker.groups.values():
        problem = groups.problem()
        if problem is not None:
            return ListGroupsResponse(error_code=problem)
        listed = [_classic(group) for group in groups.coordinator.classic_groups()]
        listed += [_consumer(group) for group in groups.coordinator.consumer_groups()]
        found += [
            group
            for group in listed
            if (not states or group.group_state.lower() in states)
            and (not types or group.group_type in types)
        ]
    return ListGroupsResponse(groups=found)


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
