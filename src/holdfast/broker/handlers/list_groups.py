"""ListGroups (16), versions 0 to 5."""

from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

CLASSIC = "classic"


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
        for group in groups.coordinator.classic_groups():
            generation = group.generation
            is_wanted = not states or group.phase.value.lower() in states
            if is_wanted and (not types or CLASSIC in types):
                found.append(
                    ListedGroup(
                        group_id=group.group_id,
                        protocol_type=generation.protocol_type if generation is not None else "",
                        group_state=group.phase.value,
                        group_type=CLASSIC,
                    )
                )
    return ListGroupsResponse(groups=found)
