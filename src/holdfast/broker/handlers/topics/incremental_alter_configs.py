"""IncrementalAlterConfigs: change the configurations that are named, and leave the others.

APPEND and SUBTRACT start from the value in effect, even if that is a default.
"""

from functools import partial

from holdfast.broker.api import Api, ToController
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.handlers.topics.alter_configs import Alteration, alter_all, change_problem
from holdfast.cluster.facts import TopicConfigured
from holdfast.cluster.state import Topic
from holdfast.cluster.topics import (
    ConfigChange,
    ConfigOperation,
    decide_config_changes,
)
from holdfast.protocol.api import ApiKey, ErrorCode, Refused
from holdfast.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

API = Api(
    key=ApiKey.INCREMENTAL_ALTER_CONFIGS,
    versions=range(2),
    deviations=(
        "A request to change a broker's settings is refused: they are set when it starts.",
    ),
    forward_to=ToController(),
)


async def handle(
    broker: Broker, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    del context
    changes = [
        Alteration(r.resource_type, r.resource_name, partial(_change, r)) for r in request.resources
    ]
    decided = await alter_all(broker, changes, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=[
            IncrementalAlterConfigsResourceResponse(
                error_code=refused.error if refused else ErrorCode.NONE,
                error_message=refused.message if refused else None,
                resource_type=resource_type,
                resource_name=name,
            )
            for (resource_type, name), refused in decided.items()
        ]
    )


def _change(resource: IncrementalAlterConfigsResource, topic: Topic) -> TopicConfigured | Refused:
    for config in resource.configs:
        if config.config_operation not in ConfigOperation.__members__.values():
            return Refused(
                ErrorCode.INVALID_REQUEST,
                f"topic {topic.name}, {config.name[:200]}: Unknown operation type"
                f" {config.config_operation}",
            )
    problem = change_problem(
        topic,
        [config.name for config in resource.configs],
        [
            config.name
            for config in resource.configs
            if config.value is None and config.config_operation != ConfigOperation.DELETE
        ],
    )
    if problem is not None:
        return problem
    return decide_config_changes(
        topic,
        [
            ConfigChange(c.name, ConfigOperation(c.config_operation), c.value or "")
            for c in resource.configs
        ],
    )
